// `project` is methods.gem.project for one or two past tasks: of the four possible sets of active bounds one is right.
(function(){var box=document.getElementById(ID);if(!box||box.dataset.ready)return;box.dataset.ready="1";
var all=START,first=JSON.stringify(all),R=REACH,H=HALF,U=UNIT,svg=box.querySelector("svg"),
slide=box.querySelector("input[type=range]"),two=box.querySelector("input[type=checkbox]"),note=box.querySelector("p");
function find(name){return box.querySelector('[data-v="'+name+'"]')}
function dot(a,b){return a[0]*b[0]+a[1]*b[1]}
function past(){return two&&!two.checked?[all.g1]:all.g2?[all.g1,all.g2]:[all.g1]}
function free(P,q){if(q.every(function(x){return x>=0}))return q.map(function(){return 0});
if(q.length===1)return [-q[0]/P[0][0]];
var a=-q[0]/P[0][0],b=-q[1]/P[1][1];if(a>=0&&P[1][0]*a+q[1]>=0)return [a,0];if(b>=0&&P[0][1]*b+q[0]>=0)return [0,b];
var d=P[0][0]*P[1][1]-P[0][1]*P[0][1];return [(q[1]*P[0][1]-q[0]*P[1][1])/d,(q[0]*P[0][1]-q[1]*P[0][0])/d]}
function project(g,G,m){var along=G.map(function(k){return dot(k,g)});
if(along.every(function(x){return x>=0}))return g;
var P=G.map(function(a,i){return G.map(function(b,j){return dot(a,b)+(i===j?RIDGE:0)})}),
q=P.map(function(row,i){return along[i]+m*row.reduce(function(s,x){return s+x},0)}),v=free(P,q);
return [0,1].map(function(k){return G.reduce(function(s,one,i){return s+(m+v[i])*one[k]},g[k])})}
function xy(p){return (H+U*p[0]).toFixed(1)+" "+(H-U*p[1]).toFixed(1)}
function arrow(p,s){var n=Math.hypot(p[0],p[1]),x=p[0]/n*s,y=p[1]/n*s,d="M"+H+" "+H+"L"+xy(p);if(n<s)return d;
return d+"M"+xy([p[0]-x+y*.6,p[1]-y-x*.6])+"L"+xy(p)+"L"+xy([p[0]-x-y*.6,p[1]-y+x*.6])}
function ban(p){var n=Math.hypot(p[0],p[1])||1,x=p[0]/n*9,y=p[1]/n*9;
return "M"+xy([-y,x])+"L"+xy([y,-x])+"L"+xy([y-x,-x-y])+"L"+xy([-y-x,x-y])+"Z"}
function f(x){return (Math.abs(x)<.005?0:x).toFixed(2).replace("-","\u2212")}
function pair(p){return "("+f(p[0])+", "+f(p[1])+")"}
function draw(){var G=past(),m=+slide.value,step=project(all.g,G,m);
["g","g1","g2"].forEach(function(k){var h=find(k);if(!h)return;var off=k==="g2"&&G.length<2,p=all[k];
find(k+"-arrow").setAttribute("d",off?"":arrow(p,.28));h.setAttribute("transform","translate("+xy(p)+")");
h.style.display=off?"none":"";h.setAttribute("aria-valuenow",Math.round(Math.atan2(p[1],p[0])*180/Math.PI));
h.setAttribute("aria-valuetext","x "+f(p[0])+", y "+f(p[1]));
if(k!=="g")find(k+"-ban").setAttribute("d",off?"":ban(p))});
find("step").setAttribute("d",arrow(step,.36));box.dataset.result=step.join(",");
var same=step===all.g;
note.textContent=G.map(function(one,i){var x=dot(one,all.g);
return "g \u00b7 g"+(i+1)+" = "+f(x)+(x<0?": against task ":": not against task ")+(i+1)}).join("; ")+". "+
(same?"GEM steps along g itself.":"GEM steps along "+pair(step)+", whose products are "+
G.map(function(one){return f(dot(one,step))}).join(" and ")+".");
box.querySelector("output").textContent=m.toFixed(2)}
function put(k,x,y){all[k]=[Math.max(-R,Math.min(R,x)),Math.max(-R,Math.min(R,y))];draw()}
["g","g1","g2"].forEach(function(k){var h=find(k);if(!h)return;h.setAttribute("tabindex","0");
h.addEventListener("pointerdown",function(e){e.preventDefault();h.focus();h.setPointerCapture(e.pointerId)});
h.addEventListener("pointermove",function(e){if(!h.hasPointerCapture(e.pointerId))return;
var r=svg.getBoundingClientRect();put(k,((e.clientX-r.left)/r.width*2*H-H)/U,(H-(e.clientY-r.top)/r.height*2*H)/U)});
h.addEventListener("keydown",function(e){if(e.altKey||e.ctrlKey||e.metaKey)return;
var by=e.shiftKey?.5:.1,d={ArrowLeft:[-by,0],ArrowRight:[by,0],ArrowUp:[0,by],ArrowDown:[0,-by]}[e.key];
if(!d)return;e.preventDefault();e.stopPropagation();put(k,all[k][0]+d[0],all[k][1]+d[1])})});
slide.addEventListener("input",draw);if(two)two.addEventListener("change",draw);
box.querySelector("button").addEventListener("click",function(){all=JSON.parse(first);slide.value=MARGIN;
if(two)two.checked=true;draw()});
[].forEach.call(box.querySelectorAll(".cm-row"),function(b){b.hidden=false});draw()})();
