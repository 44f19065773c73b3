// Every field is a cell of R; the slider belongs to the cell that was used last. Numbers are shown as Python shows them.
(function(){var box=document.getElementById(ID);if(!box||box.dataset.ready)return;box.dataset.ready="1";
var D=DATA,n=D.n,cells=[].slice.call(box.querySelectorAll("td input")),cards=[].slice.call(box.querySelectorAll(".cm-card")),
select=box.querySelector("select"),slide=box.querySelector(".cm-slide"),range=slide.querySelector("input"),
said=slide.querySelector("span"),sum=box.querySelector(".cm-sum output"),now=null;
var stops=[[239,227,200],[159,182,214],[58,78,255],[32,39,138]];
function text(v){if(!isFinite(v))return"\u2013";var s=v.toFixed(1);return s==="-0.0"?"0.0":s.replace("-","\u2212")}
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
sum.textContent=text(M.learning_accuracy)+" + "+(n-1)+"/"+n+" \u00b7 ("+text(M.bwt_final)+") = "+text(M.accuracy)}
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
