// A handle follows pointer or arrow keys; centroids, cells and chances are computed anew at each move.
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
bars[k].querySelector("output").textContent=(kind==="squared"?"d\u00b2 ":"d ")+z[k].toFixed(2)+", p "+(e[k]/total).toFixed(2)});
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
