// The page: controls, the clock, and what is shown. All training is done by engine.js, all drawing by picture.js.
(function (pg) {
  "use strict";

  const root = typeof document === "undefined" ? null : document.getElementById("pg");
  if (!root || root.dataset.ready) return;
  root.dataset.ready = "1";
  const find = (selector, from = root) => from.querySelector(selector), all = (selector, from = root) => [...from.querySelectorAll(selector)];
  const make = (tag, text = "", attributes = {}) => {
    const element = document.createElement(tag);
    element.textContent = text;
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  };
  const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

  const WORK = 5; // milliseconds of training a frame; drawing takes about 3 more
  const PACE = { slow: 0.06, normal: 0.3, fast: Infinity }; // tasks a second
  const LADDER = [1, 2, 5];
  const form = find("form"), state = { setting: null, sides: [], playing: false, target: pg.TASKS, space: null, guesses: {}, clock: 0, owed: 0 };
  pg.state = state; // for a look from the console, and for the tests
  pg.frames = { longest: 0, work: 0 }; // milliseconds

  // --- a setting ----------------------------------------------------------------------------------------------------

  function apply({ setting, remarks }) {
    stop();
    const { at } = setting;
    state.setting = { ...setting, at: 0 };
    const settings = setting.compare ? [state.setting, pg.naiveBeside(state.setting)] : [state.setting];
    state.sides = settings.map((one) => ({ setting: one, run: pg.start(one), snaps: [], homes: [] }));
    state.sides.forEach((side) => { side.snaps[0] = pg.copy(side.run); });
    state.space = null;
    state.owed = 0;
    document.body.classList.add("pg-fresh");
    makePanels();
    showSetting();
    showNotes(remarks);
    say(`Ready: ${titleOf(state.setting)}. Nothing is learned yet.`);
    draw(true);
    if (at) play(at, true);
  }

  // A change by the reader: a new entry in the history of the browser, so that "back" takes it back.
  function change(values) {
    const setting = { ...state.setting, ...values };
    for (const key of ["method", "scenario", "projectors"]) { // another method comes with its own usual settings
      if (key in values) {
        const old = state.setting, usual = pg.defaults(old.method, old.scenario, old.projectors), next = pg.defaults(setting.method, setting.scenario, setting.projectors);
        for (const name of ["lr", "lam", "strength", "support", "epochs"]) if (old[name] === usual[name]) setting[name] = next[name];
      }
    }
    setting.at = 0;
    const address = pg.format(setting);
    if (address !== location.hash) history.pushState(null, "", address);
    apply({ setting, remarks: [] });
  }

  function keepAddress() { // with the task that was reached, so that the address shows what the page shows
    const at = Math.min(...state.sides.map(({ run }) => (run.learning ? run.task : run.R.length)));
    history.replaceState(null, "", pg.format({ ...state.setting, at }));
  }

  function fromAddress() {
    const { hash } = location, said = hash.includes("=");
    if (state.setting && hash && !said) return; // a place on the page
    const parsed = pg.parse(said ? hash : "");
    if (said || !state.setting || pg.format({ ...parsed.setting, at: 0 }) !== pg.format(state.setting)) apply(parsed);
  }

  function titleOf(setting) {
    const more = pg.USED.projectors(setting) && !setting.projectors ? " without projectors" : "";
    return `${pg.TITLES[setting.method]}${more}, ${setting.scenario.toUpperCase()}`;
  }

  function showSetting() {
    const s = state.setting, usual = pg.defaults(s.method, s.scenario, s.projectors);
    for (const input of all("input[type=radio]", form)) input.checked = s[input.name.slice(3)] === input.value;
    for (const label of all("[data-for]", form)) {
      const key = label.dataset.for, input = find("input, select", label);
      label.hidden = key === "own" ? s.order === "natural" || s.order === "seed" : Boolean(pg.USED[key] && !pg.USED[key](s));
      if (key === "compare" && s.method === "naive") label.hidden = true;
      if (input.type === "checkbox") input.checked = s[key];
      else if (key === "order") input.value = ["natural", "seed"].includes(s.order) ? s.order : "own";
      else input.value = key === "own" ? (label.hidden ? "0123456789" : s.order) : s[key];
    }
    const changed = ["lr", "lam", "strength", "support", "epochs", "memory"].some((key) => s[key] !== usual[key] && !(pg.USED[key] && !pg.USED[key](s)));
    find("[data-do=usual]").disabled = !changed;
    find(".pg-fold > summary").textContent = `Settings: ${titleOf(s)}`;
  }

  function showNotes(remarks) {
    const trouble = state.sides.map(({ run }) => run.trouble).filter(Boolean);
    const notes = [...remarks, ...pg.warnings(state.setting), ...trouble];
    const shown = all(".pg-notes p").map((p) => p.textContent);
    if (notes.join() !== shown.join()) find(".pg-notes").replaceChildren(...notes.map((text) => make("p", text)));
    state.remarks = remarks;
  }

  const say = (text) => { find(".pg-say").textContent = text; };

  // --- the clock ----------------------------------------------------------------------------------------------------

  const reached = () => Math.min(...state.sides.filter(({ run }) => !run.finished).map(({ run }) => pg.progress(run)), pg.TASKS);
  const over = () => state.sides.every(({ run }) => run.finished);

  // One gradient step of the side that is behind; the snapshot at a task's end.
  function advance() {
    const behind = state.sides.filter(({ run }) => !run.finished).sort((a, b) => pg.progress(a.run) - pg.progress(b.run))[0];
    if (!behind) return;
    const { run } = behind;
    pg.step(run);
    if (!run.learning) taskEnded(behind);
  }

  function taskEnded(side) {
    const { run } = side;
    if (!run.trouble) side.snaps[run.task + 1] = pg.copy(run);
    if (state.sides.every((other) => other.run.finished || (!other.run.learning && other.run.task === run.task))) {
      if (run === state.sides[0].run || !state.sides[0].run.learning) announce();
      keepAddress();
    }
    if (over()) finish();
  }

  function announce() {
    const words = state.sides.map(({ run, setting }) => {
      const row = run.R[run.R.length - 1];
      if (run.trouble || !row) return `${titleOf(setting)} blew up.`;
      const each = row.map((v, j) => `${Math.round(v)} % on task ${j + 1}`).join(", ");
      const sums = pg.summary(run.R), end = run.finished ? ` Accuracy ${sums.accuracy.toFixed(1)} %, final BWT ${signed(sums.bwt)} points.` : "";
      return `${titleOf(setting)}: ${each}.${end}`;
    });
    say(`After task ${Math.max(...state.sides.map(({ run }) => run.task)) + 1} of ${pg.TASKS}. ${words.join(" ")}`);
  }

  function finish() {
    showNotes(state.remarks);
    const main = state.sides[0].run;
    if (main.trouble) return say(main.trouble);
    if (main.R.length === pg.TASKS) judge(main);
    const sums = pg.summary(main.R), weak = main.setting.scenario === "til" ? 70 : 50;
    if (sums && sums.learning < weak) {
      find(".pg-notes").append(make("p", `It hardly learned: right after each task it got ${sums.learning.toFixed(0)} % of that task's images right on average. What was not learned cannot be forgotten.`));
    }
  }

  function play(until = pg.TASKS, quick = false) {
    if (over()) return;
    document.body.classList.remove("pg-fresh");
    Object.assign(state, { playing: true, target: until, quick, clock: 0, owed: 0 });
    showBar();
    next(frame);
  }

  function stop() {
    state.playing = false;
  }

  function next(work) { // one loop at most
    cancelAnimationFrame(state.request);
    state.request = requestAnimationFrame(work);
  }

  // At most WORK milliseconds of training, then one picture. With reduced motion the picture changes at a task's end only.
  function frame(time) {
    if (!state.playing || document.hidden) return;
    const began = performance.now(), pace = state.quick || still() ? Infinity : PACE[find("[name=speed]").value];
    const ends = () => state.sides.map(({ run }) => run.R.length).join(), tasks = ends();
    if (state.clock) state.owed = Math.min(state.owed + (pace * Math.min(100, time - state.clock)) / 1000, 1);
    state.clock = time;
    const from = reached();
    while (!over() && reached() < state.target && performance.now() - began < WORK) {
      if (pace < Infinity && reached() - from >= state.owed) break;
      advance();
      if (tasks !== ends()) break; // the end of a task has its own picture
    }
    if (pace < Infinity) state.owed = Math.max(-0.1, state.owed - (reached() - from)); // a step more than was owed waits its turn
    if (over() || reached() >= state.target) stop();
    const ended = tasks !== ends();
    const last = ended || !state.playing; // its picture is a whole one, and has a frame of its own
    if (!last && !still()) draw(false);
    measure(began);
    next(last ? lastPicture : frame);
  }

  function lastPicture() {
    const began = performance.now();
    draw(true);
    measure(began);
    if (state.playing) next(frame);
  }

  function measure(began) {
    const took = performance.now() - began;
    pg.frames = { longest: Math.max(pg.frames.longest, took), work: pg.frames.work + took };
  }

  function goTo(moment) { // back, or forward again, to the end of a task (0: the start)
    stop();
    state.sides.forEach((side) => { if (side.snaps[moment]) side.run = pg.copy(side.snaps[moment]); });
    state.owed = 0;
    showNotes(state.remarks);
    if (moment) { announce(); keepAddress(); } else { say("Back at the start: nothing is learned yet."); keepAddress(); }
    draw(true);
  }

  // --- what is shown ------------------------------------------------------------------------------------------------

  function inks() {
    const style = getComputedStyle(root), read = (name) => style.getPropertyValue(name).trim();
    const palette = pg.PALETTE.map((_, k) => read(`--c${k}`));
    return { ink: read("--ink"), edge: read("--edge"), halo: read("--halo"), faint: read("--line"), palette };
  }

  function sized(canvas) { // a canvas as sharp as the screen -> its pen, width and height in CSS pixels
    const ratio = Math.min(3, window.devicePixelRatio || 1), { clientWidth: width, clientHeight: height } = canvas;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    return { pen: pg.canvasPen(context), width, height };
  }

  function makePanels() {
    const box = find(".pg-panels");
    box.dataset.count = state.sides.length;
    box.replaceChildren(...state.sides.map((side) => {
      const panel = find("#pg-panel").content.firstElementChild.cloneNode(true);
      side.panel = panel;
      find(".pg-title", panel).replaceChildren(`${titleOf(side.setting)} `, make("small", `learning rate ${side.setting.lr}, ${side.setting.epochs} epochs a task`));
      panel.setAttribute("aria-label", titleOf(side.setting));
      makeMatrix(panel);
      makeSpaces(side);
      return panel;
    }));
  }

  function makeMatrix(panel) {
    const head = make("tr");
    head.append(make("td", ""), ...Array.from({ length: pg.TASKS }, (_, j) => make("th", `task ${j + 1}`, { scope: "col" })));
    find("thead", panel).replaceChildren(head);
    find("tbody", panel).replaceChildren(...Array.from({ length: pg.TASKS }, (_, i) => {
      const row = make("tr");
      row.append(make("th", `after ${i + 1}`, { scope: "row" }), ...Array.from({ length: pg.TASKS }, () => make("td")));
      return row;
    }));
  }

  function makeSpaces(side) {
    const box = find(".pg-spaces", side.panel), { order } = side.run;
    if (side.setting.scenario === "cil") {
      box.hidden = true;
      return;
    }
    box.replaceChildren(make("span", "Plane of task"), ...Array.from({ length: pg.TASKS }, (_, i) => {
      const button = make("button", `${i + 1}`, { type: "button", "aria-label": `Plane of task ${i + 1}: ${order[2 * i]} or ${order[2 * i + 1]}`, style: `--hue:var(--c${2 * i})` });
      button.addEventListener("click", () => { state.space = i; draw(true); });
      return button;
    }));
  }

  // Which plane is looked at: the reader's choice, else that of task 1.
  const spaceOf = ({ run }) => (run.setting.scenario === "til" ? Math.min(state.space ?? 0, run.task) : 0);

  // Where the points of a task were right after it was learned. (CM in CIL: after task 2, when the merged plane begins.)
  function homeOf(side, i) {
    const { setting, snaps, run } = side, first = setting.scenario === "cil" && setting.method === "cm" ? 2 : i + 1;
    if (!snaps[first] || run.R.length < first) return null;
    side.homes[i] = side.homes[i] || { task: i, places: pg.answers(snaps[first], i).places };
    return side.homes[i];
  }

  function draw(full) {
    const colours = inks();
    for (const side of state.sides) {
      const { setting, run: { task } } = side, needed = full || setting.scenario === "cil" ? Array.from({ length: task + 1 }, (_, j) => j) : [spaceOf(side)];
      side.known = [];
      for (const j of needed) side.known[j] = pg.answers(side.run, j);
      drawPlane(side, colours, full);
      const { curve } = side.run;
      if (full || side.drawn !== curve.length) drawNumbers(side, colours);
      side.drawn = curve.length;
      if (full) showWrong(side);
    }
    showBar();
  }

  function drawPlane(side, colours, full) {
    const { run, panel, setting } = side, i = spaceOf(side), home = homeOf(side, i), canvas = find(".pg-canvas", panel);
    const what = pg.scene(run, i, home, side.known), { pen, width } = sized(canvas);
    pg.drawPlane(pen, what, pg.view(what), width, colours);
    side.frames = full ? 0 : (side.frames ?? 0) + 1;
    if (side.frames % 10) return; // words may lag behind by ten pictures
    const wrong = what.points.filter((p) => p.wrong).length, count = what.points.length, til = setting.scenario === "til";
    const names = til ? `the digits ${run.order[2 * i]} and ${run.order[2 * i + 1]}` : `${2 * (run.task + 1)} digits`;
    canvas.setAttribute("aria-label", `Plane ${til ? `of task ${i + 1} ` : ""}with ${count} test images of ${names}; ${wrong} lie in a wrong cell.`);
    find(".pg-caption", panel).textContent = caption(side, i, wrong, count, home);
    all(".pg-spaces button", panel).forEach((button, k) => {
      button.setAttribute("aria-pressed", String(k === i));
      button.disabled = k > run.task;
    });
  }

  function caption({ setting, run }, i, wrong, count, home) {
    const til = setting.scenario === "til", cm = setting.method === "cm";
    const cells = cm ? "Crosses are centroids; a cell holds what is nearest to its own." : til ? "Right and up are the scores of the two digits; the border is where they are equal." : "A cell is where its digit has the highest score.";
    const since = cm && !til ? "task 2 (where the merged plane begins)" : `task ${i + 1}`;
    const moved = home && run.R.length >= (cm && !til ? 2 : i + 1) && pg.progress(run) > i + 1 ? ` Arrows lead from where the images of task ${i + 1} were right after ${since}.` : "";
    return `Each point is a test image, coloured by what it is; ${wrong} of ${count} (ringed) lie in a wrong cell. ${cells}${moved}`;
  }

  const signed = (v) => (Math.abs(v) < 0.05 ? "0.0" : `${v < 0 ? "−" : "+"}${Math.abs(v).toFixed(1)}`);

  function drawNumbers(side, colours) {
    const { run, panel } = side, now = run.curve[run.curve.length - 1];
    const rows = run.R.map((row) => row);
    if (run.learning && run.curve.length > 1) rows.push(now.accuracy);
    all("tbody tr", panel).forEach((row, i) => {
      row.classList.toggle("pg-now", run.learning && i === run.task);
      all("td", row).forEach((cell, j) => {
        const value = rows[i]?.[j];
        const { fill, ink } = value === undefined ? { fill: "", ink: "" } : pg.accuracyColour(value);
        Object.assign(cell.style, { background: fill, color: ink });
        cell.textContent = value === undefined ? "" : String(Math.round(value));
      });
    });
    showSums(side);
    const [accuracy, loss] = all(".pg-curve canvas", panel);
    for (const [canvas, what] of [[accuracy, "accuracy"], [loss, "loss"]]) {
      const { pen, width, height } = sized(canvas);
      pg.drawCurves(pen, run.curve, what, width, height, colours);
      const values = now[what].map((v, j) => `task ${j + 1} ${what === "loss" ? v.toFixed(2) : `${Math.round(v)} %`}`).join(", ");
      canvas.setAttribute("aria-label", `${what === "loss" ? "Loss" : "Accuracy"} of each task along the steps; now ${values}.`);
    }
  }

  function size(bytes) {
    return bytes < 1000 ? `${bytes} bytes` : `${(bytes / 1000).toFixed(1)} kB`;
  }

  function showSums({ run, panel }) {
    const sums = pg.summary(run.R), kept = pg.keeps(run);
    const what = kept.items.map((item) => `${item.count} ${item.what}`).join(", ") || "nothing";
    const entry = (name, value, more) => {
      const box = make("div"), number = make("dd", value);
      number.append(make("small", more));
      box.append(make("dt", name), number);
      return box;
    };
    find(".pg-sums", panel).replaceChildren(
      entry("Accuracy", sums ? `${sums.accuracy.toFixed(1)} %` : "–", "mean of the last row"),
      entry("final BWT", sums && run.R.length > 1 ? signed(sums.bwt) : "–", "change of old tasks"),
      entry("kept", size(kept.bytes), `${what}; the network: ${size(kept.network)}`),
    );
  }

  // The test images that are wrong now, of all tasks so far.
  function showWrong({ run, panel, known }) {
    const found = [];
    let count = 0;
    for (let j = 0; j <= run.task; j++) {
      const { rows, labels, given } = known[j];
      count += rows.length;
      rows.forEach((row, r) => { if (given[r] !== labels[r]) found.push({ row, label: labels[r], given: given[r] }); });
    }
    const when = run.learning ? `while task ${run.task + 1} was learned` : `after task ${run.task + 1}`;
    find(".pg-wrong h3", panel).textContent = `Wrong ${pg.progress(run) ? when : "at the start"}: ${found.length} of ${count} test images${found.length > 24 ? ", 24 of them here" : ""}`;
    const step = Math.max(1, found.length / 24), chosen = found.filter((_, k) => Math.floor(k / step) !== Math.floor((k - 1) / step)).slice(0, 24);
    find(".pg-wrong ul", panel).replaceChildren(...chosen.map(({ row, label, given }) => {
      const item = make("li", "", { "aria-label": `a ${run.order[label]}, taken for a ${run.order[given]}` }), canvas = make("canvas", "", { width: 8, height: 8, "aria-hidden": "true", style: `--hue:var(--c${label})` });
      drawDigit(canvas, row);
      item.append(canvas, make("span", `${run.order[label]} → ${run.order[given]}`, { "aria-hidden": "true" }));
      return item;
    }));
  }

  function drawDigit(canvas, row) {
    const context = canvas.getContext("2d"), image = context.createImageData(8, 8), { pixels } = pg.data();
    for (let p = 0; p < 64; p++) {
      const grey = 255 - Math.round((pixels[64 * row + p] * 255) / 16);
      image.data.set([grey, grey, grey, 255], 4 * p);
    }
    context.putImageData(image, 0, 0);
  }

  function showBar() {
    const done = over(), button = find("[data-do=run]");
    const word = state.playing ? "Pause" : reached() > 0 && !done ? "Go on" : "Run";
    if (button.textContent !== word) button.textContent = word;
    const idle = String(done && !state.playing); // not `disabled`, which would take the keyboard's place away
    for (const name of ["run", "step", "task"]) find(`[data-do=${name}]`).setAttribute("aria-disabled", idle);
    const main = state.sides[0], { task, epoch, learning, loss, setting } = main.run;
    find(".pg-now-at").textContent = main.run.trouble ? `Stopped in task ${task + 1}.` : !learning ? `Task ${task + 1} is over.`
      : `Task ${task + 1} of ${pg.TASKS}, epoch ${Math.min(epoch + 1, setting.epochs)} of ${setting.epochs}${loss >= 0 ? `, loss of the last batch ${loss.toFixed(2)}` : ""}`;
    all(".pg-moments button").forEach((one, k) => {
      one.disabled = !state.sides.some(({ snaps }) => snaps[k]);
      const here = k === 0 ? pg.progress(main.run) === 0 : !main.run.learning && !main.run.trouble && main.run.task + 1 === k;
      if (here) one.setAttribute("aria-current", "step");
      else one.removeAttribute("aria-current");
    });
  }

  // --- things to try ------------------------------------------------------------------------------------------------

  function makeExercises() {
    find(".pg-list").replaceChildren(...pg.EXERCISES.map((exercise, k) => {
      const item = make("li"), guess = make("fieldset", "", { class: "pg-guess" }), begin = make("button", "Set it up", { type: "button" });
      guess.append(make("legend", exercise.question), ...exercise.guesses.map((text, g) => {
        const label = make("label"), input = make("input", "", { type: "radio", name: `pg-guess-${k}`, value: g });
        input.addEventListener("change", () => { state.guesses[k] = g; });
        label.append(input, make("span", text));
        return label;
      }));
      begin.setAttribute("aria-label", `Set it up: ${exercise.title}`);
      begin.addEventListener("click", () => {
        all(".pg-list > li").forEach((one) => one.classList.toggle("pg-active", one === item));
        if (location.hash !== exercise.setup) history.pushState(null, "", exercise.setup);
        apply(pg.parse(exercise.setup));
        find("[data-do=run]").focus({ preventScroll: true });
        root.scrollIntoView({ behavior: still() ? "auto" : "smooth" });
      });
      item.append(make("h3", exercise.title), make("p", exercise.text), guess, begin, make("p", "", { class: "pg-verdict", role: "status" }));
      return item;
    }));
  }

  function judge(run) {
    all(".pg-list > li").forEach((item, k) => {
      const found = pg.verdict(pg.EXERCISES[k], state.guesses[k] ?? null, run, state.sides[1]?.run.R ?? []);
      if (!found || !(item.classList.contains("pg-active") || state.guesses[k] !== undefined) || item.classList.contains("pg-done")) return;
      item.classList.toggle("pg-done", found.done);
      find(".pg-verdict", item).textContent = found.text;
    });
  }

  // --- controls -----------------------------------------------------------------------------------------------------

  function ladder(key, text, up) { // the next usual value: 1, 2, 5, 10, ...
    const [low, high, whole] = pg.RANGES[key], typed = Number(text), value = Number.isNaN(typed) ? state.setting[key] : typed;
    if (key === "seed" || key === "epochs") return String(Math.min(high, Math.max(low, Math.round(value) + (up ? 1 : -1))));
    const steps = [...(low === 0 ? [0] : [])];
    for (let power = -4; power <= 9; power++) for (const one of LADDER) steps.push(Number(`${one}e${power}`));
    const allowed = steps.filter((v) => v >= low && v <= high && (!whole || Number.isInteger(v)));
    return String(up ? (allowed.find((v) => v > value) ?? high) : (allowed.reverse().find((v) => v < value) ?? low));
  }

  function read(input) {
    const remarks = [], key = input.name, value = key === "own" ? pg.orderOf(input.value, remarks) : pg.within(key, input.value, state.setting[key], remarks);
    const target = key === "own" ? "order" : key;
    if (value !== state.setting[target]) change({ [target]: value });
    else showSetting();
    if (remarks.length) showNotes(remarks);
  }

  function listen() {
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("change", ({ target }) => {
      if (target.type === "radio") change({ [target.name.slice(3)]: target.value });
      else if (target.type === "checkbox") change({ [target.name]: target.checked });
      else if (target.name === "order") change({ order: target.value === "own" ? find("[name=own]").value : target.value });
      else read(target);
    });
    form.addEventListener("keydown", (event) => {
      const { target, key } = event;
      if (!(target.name in pg.RANGES) || !["ArrowUp", "ArrowDown", "Enter"].includes(key)) return;
      event.preventDefault();
      if (key !== "Enter") target.value = ladder(target.name, target.value, key === "ArrowUp");
      read(target);
    });
    const actions = {
      run: () => { if (state.playing) { stop(); draw(true); } else play(); },
      step: () => { stop(); document.body.classList.remove("pg-fresh"); advance(); draw(true); },
      task: () => play(Math.min(pg.TASKS, Math.floor(reached()) + 1)),
      restart: () => goTo(0),
      usual: () => { const s = state.setting, { lr, lam, strength, support, epochs, memory } = pg.defaults(s.method, s.scenario, s.projectors); change({ lr, lam, strength, support, epochs, memory }); },
      link: () => copyLink(),
    };
    for (const button of all("[data-do]")) {
      button.addEventListener("click", () => { if (button.getAttribute("aria-disabled") !== "true") actions[button.dataset.do](); });
    }
    find(".pg-moments").replaceChildren(make("span", "after task"), ...Array.from({ length: pg.TASKS + 1 }, (_, k) => {
      const hue = k ? `--hue:var(--c${2 * k - 2})` : "", button = make("button", k ? String(k) : "start", { type: "button", "aria-label": k ? `After task ${k}` : "The start", style: hue });
      button.addEventListener("click", () => goTo(k));
      return button;
    }));
    addEventListener("popstate", fromAddress);
    document.addEventListener("visibilitychange", () => { if (!document.hidden && state.playing) { state.clock = 0; next(frame); } });
    let wait = 0;
    const again = () => { clearTimeout(wait); wait = setTimeout(() => draw(true), 60); };
    addEventListener("resize", again);
    for (const name of ["beforeprint", "afterprint"]) addEventListener(name, () => draw(true)); // in the ink of the paper
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
    new MutationObserver(again).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  }

  async function copyLink() {
    const button = find("[data-do=link]");
    try { await navigator.clipboard.writeText(location.href); button.textContent = "Copied"; } catch (_) { button.textContent = "It is in the address bar"; }
    setTimeout(() => { button.textContent = "Copy the link"; }, 2000);
  }

  find(".pg-still", document).hidden = true;
  find(".pg-live").hidden = false;
  find(".pg-fold").open = root.clientWidth >= 700; // on a phone the picture comes first
  listen();
  makeExercises();
  fromAddress();
})(globalThis.Playground = globalThis.Playground || {});
