// Arrow keys, Home and End work anywhere in the player; with reduced motion the button goes one step at a time.
(function(){var box=document.getElementById(ID);if(!box||box.dataset.ready)return;box.dataset.ready="1";
var all=[].slice.call(box.querySelectorAll(".cm-frame")),range=box.querySelector("input[type=range]"),
button=box.querySelector("button"),count=box.querySelector("output"),radios=box.querySelectorAll("input[type=radio]"),
still=window.matchMedia&&matchMedia("(prefers-reduced-motion: reduce)").matches,group="0",at=START,timer=null;
function frames(){return all.filter(function(f){return f.dataset.group===group})}
function draw(){var list=frames();at=Math.max(0,Math.min(at,list.length-1));
all.forEach(function(f){f.hidden=f!==list[at]});range.max=list.length-1;range.value=at;
range.setAttribute("aria-valuetext",list[at].dataset.say);count.textContent=(at+1)+" / "+list.length}
function stop(){clearInterval(timer);timer=null;button.textContent=still?"Next":"Play"}
function go(k){stop();at=k;draw()}
function next(){var n=frames().length;if(still){at=(at+1)%n;draw();return}
if(timer){stop();return}if(at>=n-1){at=0;draw()}button.textContent="Pause";
timer=setInterval(function(){at+=1;draw();if(at>=frames().length-1)stop()},PACE)}
button.addEventListener("click",next);range.addEventListener("input",function(){go(+range.value)});
[].forEach.call(radios,function(r){r.addEventListener("change",function(){group=r.value;draw()})});
box.addEventListener("keydown",function(e){if(e.target.type==="radio"||e.altKey||e.ctrlKey||e.metaKey)return;
var k={ArrowLeft:at-1,ArrowDown:at-1,ArrowRight:at+1,ArrowUp:at+1,Home:0,End:1e6}[e.key];
if(k===undefined)return;e.preventDefault();e.stopPropagation();go(k)});
[].forEach.call(box.querySelectorAll(".cm-bar,.cm-toggle"),function(b){b.hidden=false});stop();draw()})();
