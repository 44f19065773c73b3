// COUNT maps "method:scenario" to a function of the letters: by the formula, scalars kept, bytes kept, parameters of the heads.
(function(){var box=document.getElementById(ID);if(!box||box.dataset.ready)return;box.dataset.ready="1";
var COUNT=FUNCTIONS,STEPS=VALUES,BACK=CONSTANTS,NAMES=TITLES;
function one(s){return box.querySelector(s)}
function slider(n){return one('input[name="'+n+'"]')}
function chosen(n){return one('input[data-of="'+n+'"]:checked').value}
function whole(v){return v.toLocaleString("en-US")}
function size(v){if(v<1000)return v+" B";var u=["kB","MB","GB","TB"],k=-1;while(v>=1000&&k<3){v/=1000;k++}
var d=v<10?2:v<100?1:0,p=Math.pow(10,d);return(Math.floor(v*p+.5)/p).toFixed(d)+" "+u[k]}
function place(v){return 100*Math.max(0,Math.min(1,(Math.log10(Math.max(v,1))-LOW)/(HIGH-LOW)))}
function draw(){var s={},kind=chosen("kind"),count=chosen("count"),heads=one('input[type=checkbox]'),all=[];
Object.keys(STEPS).forEach(function(n){var at=+slider(n).value;s[n]=STEPS[n][at][0];
one('output[data-of="'+n+'"]').textContent=STEPS[n][at][1];slider(n).setAttribute("aria-valuetext",STEPS[n][at][1])});
var c=BACK[s.image];heads.disabled=count==="formula";
[].forEach.call(box.querySelectorAll("li"),function(row){
var f=COUNT[row.dataset.method+":"+kind];row.hidden=!f;if(!f)return;
var r=f(s.n_tasks,s.classes,s.embedding,s.image,s.shared,s.a_task,c.D,c.B,c.V),more=heads.checked?r[3]:0,
v=count==="formula"?r[0]:count==="kept"?r[1]+more:r[2]+4*more,t=count==="bytes"?size(v):whole(v);
row.querySelector(".cm-bar").style.width=place(v)+"%";row.querySelector(".cm-value").textContent=t;
var mark=row.querySelector(".cm-mark");mark.hidden=count!=="kept";mark.style.left=place(r[0])+"%";
all.push({m:row.dataset.method,v:v,t:t,f:whole(r[0])})});
one(".cm-unit").textContent=count==="bytes"?"bytes":"scalars";
all.sort(function(a,b){return a.v-b.v});var cm=all.filter(function(a){return a.m==="cm"})[0],least=all[0].v<cm.v?all[0]:cm,
next=all.filter(function(a){return a.m!=="cm"})[0],said=least===cm?"CM keeps the least: "+cm.t+"; the next is "+NAMES[next.m]
+" with "+next.t+".":NAMES[least.m]+" keeps the least: "+least.t+"; CM keeps "+cm.t+".";
if(count==="kept")said+=" The formula of CM says "+cm.f+"; thin marks are the formulas.";
one(".cm-said").textContent=said}
box.addEventListener("input",draw);box.addEventListener("change",draw);one(".cm-in").hidden=false;draw()})();
