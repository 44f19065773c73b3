"""Style and scripts of the widgets; `ID` and `DATA` are filled in by `widgets`."""

from __future__ import annotations

CSS = """
.cm-widget{--cm-ink:#444;--cm-edge:#767676;--cm-halo:#fff;max-width:30rem;margin:1em auto;color:var(--cm-ink)}
html[data-theme=dark] .cm-widget,html[theme=dark] .cm-widget,body[data-jp-theme-light=false] .cm-widget
{--cm-ink:#d0d0d0;--cm-edge:#999;--cm-halo:#14181e}
.cm-widget [hidden]{display:none!important}
.cm-widget svg{display:block;width:100%;height:auto;background:none!important}
.cm-widget .cm-tools{display:flex;flex-wrap:wrap;gap:.4em 1.2em;align-items:center;margin:.5em 0}
.cm-widget label{cursor:pointer;color:inherit}
.cm-widget button,.cm-widget select{font:inherit;color:inherit;background:transparent;border:1px solid var(--cm-edge);
border-radius:.4em;cursor:pointer}
.cm-widget .cm-tools button,.cm-widget select{min-height:2.4rem;padding:0 .8em;max-width:100%}
.cm-widget select option{color:#222;background:#fff}
.cm-widget :is(button,select,input,.cm-pt):focus-visible{outline:3px solid #3a4eff;outline-offset:2px}
.cm-widget table{border-collapse:separate;border-spacing:3px;margin:0;width:100%;table-layout:fixed;border:0;background:none;
color:inherit;font-size:1em}
.cm-widget :is(tr,td,th){background:none!important;border:0!important;padding:0!important;color:inherit;font-weight:400;
text-align:center!important}
.cm-widget :is(td,th):first-child{width:2.6em}
.cm-widget td input{box-sizing:border-box;width:100%;min-width:0;height:2.6rem;padding:0;border:2px solid transparent;
border-radius:.3em;font:inherit;text-align:center;-moz-appearance:textfield;appearance:textfield}
.cm-widget td input::-webkit-inner-spin-button{display:none}
.cm-widget td input.cm-used{border-color:#e0218a;box-shadow:0 0 0 2px #e0218a}
.cm-widget td input[aria-invalid=true]{outline:3px dashed #d00}
.cm-widget .cm-slide{display:flex;gap:.8em;align-items:center;margin:.5em 0}
.cm-widget .cm-slide span{flex:0 0 10.5em}
.cm-widget .cm-slide input{flex:1;min-width:0;height:2rem;accent-color:#3a4eff}
.cm-widget .cm-cards{display:grid;grid-template-columns:1fr 1fr;gap:.5em;margin:.6em 0}
.cm-widget .cm-card{text-align:left;padding:.4em .7em;line-height:1.3}
.cm-widget .cm-card *{display:block;color:inherit}
.cm-widget .cm-card output{font-size:1.35em}
.cm-widget .cm-card[aria-pressed=true]{border-color:#e0218a;box-shadow:0 0 0 1px #e0218a}
.cm-widget .cm-sum,.cm-widget .cm-status{margin:.5em 0;color:inherit}
.cm-widget .cm-frame{fill:none;stroke:var(--cm-edge)}
.cm-widget .cm-v{fill-opacity:.16;stroke:var(--cm-edge);stroke-width:1}
.cm-widget .cm-l{fill:none;stroke:var(--cm-ink);stroke-width:1.3;stroke-dasharray:3 4}
.cm-widget .cm-c path{fill:none;stroke-width:4}
.cm-widget .cm-c .cm-h{stroke:var(--cm-halo);stroke-width:8}
.cm-widget .cm-on{pointer-events:none}
.cm-widget .cm-pt circle{fill:transparent}
.cm-widget .cm-pt path{stroke:var(--cm-halo);stroke-width:1.5}
.cm-widget .cm-pt[tabindex],.cm-widget .cm-pt[tabindex] *{cursor:grab;touch-action:none}
.cm-widget .cm-pt .cm-q{fill:var(--cm-halo);stroke:var(--cm-ink);stroke-width:2}
.cm-widget .cm-pt text{fill:var(--cm-ink);font:bold 13px sans-serif;text-anchor:middle;pointer-events:none}
.cm-widget .cm-bar{display:grid;grid-template-columns:5em 1fr 8.5em;gap:.6em;align-items:center;margin:.2em 0}
.cm-widget .cm-bar i{display:block;height:1rem;border:1px solid var(--cm-edge);border-radius:.2em;overflow:hidden}
.cm-widget .cm-bar b{display:block;height:100%}
@media print{.cm-widget :is(.cm-tools,.cm-slide){display:none!important}}
"""

# Every field is a cell of R; the slider belongs to the cell that was used last. Numbers are shown as Python shows them.
EDITOR_SCRIPT = """
(function(){var box=document.getElementById(ID);if(!box||box.dataset.ready)return;box.dataset.ready="1";
var D=DATA,n=D.n,cells=[].slice.call(box.querySelectorAll("td input")),cards=[].slice.call(box.querySelectorAll(".cm-card")),
select=box.querySelector("select"),slide=box.querySelector(".cm-slide"),range=slide.querySelector("input"),
said=slide.querySelector("span"),sum=box.querySelector(".cm-sum output"),now=null;
var stops=[[239,227,200],[159,182,214],[58,78,255],[32,39,138]];
function text(v){if(!isFinite(v))return"\\u2013";var s=v.toFixed(1);return s==="-0.0"?"0.0":s.replace("-","\\u2212")}
function paint(cell,v){var p=v/100*3,k=Math.min(Math.floor(p),2);
cell.style.background="rgb("+stops[k].map(function(a,c){return Math.round(a+(stops[k+1][c]-a)*(p-k))})+")";
cell.style.color=v>D.ink?"#ffffff":"#000000"}
function read(){var R=[];cells.forEach(function(c){var v=c.value.trim()===""?NaN:Number(c.value),bad=!(v>=0&&v<=100),
i=+c.dataset.i,j=+c.dataset.j;(R[i]=R[i]||[])[j]=bad?NaN:v;if(bad)c.setAttribute("aria-invalid","true");
else{c.removeAttribute("aria-invalid");paint(c,v)}});return R}
function mean(a){return a.reduce(function(s,v){return s+v},0)/a.length}
function measures(R){var all=[],end=[],diagonal=[];R.forEach(function(row,i){diagonal.push(row[i]);
for(var j=0;j<i;j++){var lost=row[j]-R[j][j];all.push(lost);if(i===n-1)end.push(lost)}});
return{accuracy:mean(R[n-1]),learning_accuracy:mean(diagonal),bwt:mean(all),bwt_final:mean(end)}}
var uses={accuracy:function(i){return i===n-1},learning_accuracy:function(i,j){return i===j},
bwt:function(i,j){return!(i===n-1&&j===n-1)},bwt_final:function(i,j){return j<n-1&&(i===n-1||i===j)}};
function draw(){var M=measures(read());
cards.forEach(function(c){c.querySelector("output").textContent=text(M[c.dataset.measure])});
sum.textContent=text(M.learning_accuracy)+" + "+(n-1)+"/"+n+" \\u00b7 ("+text(M.bwt_final)+") = "+text(M.accuracy)}
function pick(c){now=c;said.textContent="task "+(+c.dataset.j+1)+", after task "+(+c.dataset.i+1);range.value=c.value;
range.setAttribute("aria-label",c.getAttribute("aria-label"))}
function load(k){cells.forEach(function(c){c.value=D.start[k][+c.dataset.i][+c.dataset.j]});
draw();pick(now||cells[cells.length-2])}
cells.forEach(function(c){c.readOnly=false;c.addEventListener("focus",function(){pick(c)});
c.addEventListener("input",function(){draw();if(c===now)range.value=c.value})});
range.addEventListener("input",function(){now.value=range.value;draw()});
if(select)select.addEventListener("change",function(){load(+select.value)});
cards.forEach(function(c){c.addEventListener("click",function(){var on=c.getAttribute("aria-pressed")!=="true";
cards.forEach(function(o){o.setAttribute("aria-pressed",String(on&&o===c))});
cells.forEach(function(e){e.classList.toggle("cm-used",on&&uses[c.dataset.measure](+e.dataset.i,+e.dataset.j))})})});
[].forEach.call(box.querySelectorAll(".cm-tools,.cm-slide"),function(e){e.hidden=false});load(0)})();
"""

# A handle follows pointer or arrow keys; centroids, cells and chances are computed anew at each move.
SPACE_SCRIPT = """
(function(){var box=document.getElementById(ID);if(!box||box.dataset.ready)return;box.dataset.ready="1";
var D=DATA,side=D.side,unit=D.size/side,svg=box.querySelector("svg"),cells=box.querySelectorAll(".cm-v"),
lines=box.querySelectorAll(".cm-l"),crosses=box.querySelectorAll(".cm-c"),bars=box.querySelectorAll(".cm-bar"),
status=box.querySelector(".cm-status"),handles=[].slice.call(box.querySelectorAll(".cm-pt")),kind="euclidean",points,query;
function reset(){points=JSON.parse(JSON.stringify(D.points));query=D.query.slice();draw()}
function spot(h){var w=h.dataset.which.split(",");return w[0]==="q"?query:points[+w[0]][+w[1]]}
function sx(p){return(p[0]*unit).toFixed(1)}function sy(p){return((side-p[1])*unit).toFixed(1)}
function move(e,p){e.setAttribute("transform","translate("+sx(p)+" "+sy(p)+")")}
function centre(list){return[0,1].map(function(a){return list.reduce(function(s,p){return s+p[a]},0)/list.length})}
function cell(c,k){var poly=[[0,0],[side,0],[side,side],[0,side]];c.forEach(function(o,j){if(j===k)return;
var nx=o[0]-c[k][0],ny=o[1]-c[k][1],off=(nx*(o[0]+c[k][0])+ny*(o[1]+c[k][1]))/2,out=[];
poly.forEach(function(a,i){var b=poly[(i+1)%poly.length],u=nx*a[0]+ny*a[1]-off,v=nx*b[0]+ny*b[1]-off;
if(u<=0)out.push(a);if(u<0&&v>0||v<0&&u>0){var t=u/(u-v);out.push([a[0]+(b[0]-a[0])*t,a[1]+(b[1]-a[1])*t])}});
poly=out});return poly}
function draw(){var c=points.map(centre),d=c.map(function(o){return Math.hypot(o[0]-query[0],o[1]-query[1])}),
z=d.map(function(v){return kind==="squared"?v*v:v}),low=Math.min.apply(null,z),
e=z.map(function(v){return Math.exp(low-v)}),total=e.reduce(function(s,v){return s+v},0);
c.forEach(function(o,k){var path=cell(c,k).map(function(p){return sx(p)+" "+sy(p)}).join("L");
cells[k].setAttribute("d",path?"M"+path+"Z":"");move(crosses[k],o);
lines[k].setAttribute("d","M"+sx(query)+" "+sy(query)+"L"+sx(o)+" "+sy(o));
bars[k].querySelector("b").style.width=(100*e[k]/total).toFixed(1)+"%";
bars[k].querySelector("output").textContent=(kind==="squared"?"d\\u00b2 ":"d ")+z[k].toFixed(2)+", p "+(e[k]/total).toFixed(2)});
handles.forEach(function(h){var p=spot(h);move(h,p);
h.setAttribute("aria-label",h.dataset.said+" at "+p[0].toFixed(1)+", "+p[1].toFixed(1))});
var first=[];z.forEach(function(v,k){if(v-low<1e-9)first.push(D.names[k])});
status.textContent="The point ? "+(first.length>1?"lies on the border of class ":"belongs to class ")+first.join(" and ")+"."}
function put(h,x,y){var p=spot(h);p[0]=Math.min(side,Math.max(0,x));p[1]=Math.min(side,Math.max(0,y));draw()}
function at(e){var p=svg.createSVGPoint();p.x=e.clientX;p.y=e.clientY;p=p.matrixTransform(svg.getScreenCTM().inverse());
return[p.x/unit,side-p.y/unit]}
handles.forEach(function(h){var held=null;h.setAttribute("tabindex","0");h.setAttribute("role","button");
h.setAttribute("aria-roledescription","point to move with the arrow keys");
h.addEventListener("touchstart",function(e){e.preventDefault()},{passive:false});
h.addEventListener("pointerdown",function(e){var p=at(e),s=spot(h);held=[s[0]-p[0],s[1]-p[1]];
try{h.setPointerCapture(e.pointerId)}catch(_){}h.focus({preventScroll:true});e.preventDefault()});
h.addEventListener("pointermove",function(e){if(!held)return;var p=at(e);put(h,p[0]+held[0],p[1]+held[1])});
["pointerup","pointercancel"].forEach(function(n){h.addEventListener(n,function(){held=null})});
h.addEventListener("keydown",function(e){if(e.altKey||e.ctrlKey||e.metaKey)return;
var s=side/(e.shiftKey?10:50),k={ArrowLeft:[-s,0],ArrowRight:[s,0],ArrowUp:[0,s],ArrowDown:[0,-s]}[e.key],p=spot(h);
if(!k)return;e.preventDefault();e.stopPropagation();put(h,p[0]+k[0],p[1]+k[1])})});
[].forEach.call(box.querySelectorAll("input[type=radio]"),function(r){r.addEventListener("change",function(){kind=r.value;draw()})});
box.querySelector("button").addEventListener("click",reset);box.querySelector(".cm-tools").hidden=false;reset()})();
"""
