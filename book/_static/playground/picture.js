// Pictures of a run: the plane with its cells, and the curves. A pen draws them, on a canvas or as SVG.
(function (pg) {
  "use strict";

  // Hue is the task, shade the class within it, as in the whole book.
  const PALETTE = ["#3f48f3", "#8091b9", "#a13800", "#c08650", "#00696a", "#00a582", "#912aa5", "#e151ef", "#605236", "#9f9500"]; // on a light page; inks.palette: as the page is
  const STOPS = [[239, 227, 200], [159, 182, 214], [58, 78, 255], [32, 39, 138]]; // 0 % ... 100 %

  // Fill and ink of an accuracy in percent, with a contrast of 4.5 at least.
  function accuracyColour(percent) {
    const place = (percent / 100) * 3, k = Math.min(Math.floor(place), 2);
    const mixed = STOPS[k].map((a, c) => Math.round(a + (STOPS[k + 1][c] - a) * (place - k)));
    return { fill: `rgb(${mixed})`, ink: percent > 58.9 ? "#fff" : "#000" };
  }

  // --- the plane ----------------------------------------------------------------------------------------------------

  // What is seen of plane i: test images by their true class and by whether the answer is right, centroids (CM), classes that
  // compete, and arrows from where the points of a task once were (home: { task, places }); known: answers of tasks that are known already.
  function scene(run, i, home, known = []) {
    const til = run.setting.scenario === "til", tasks = til ? [i] : run.tasks.slice(0, run.task + 1).map((_, j) => j);
    const points = [], arrows = [];
    for (const j of tasks) {
      const { places, labels, given } = known[j] ?? pg.answers(run, j);
      labels.forEach((label, r) => {
        points.push({ x: places[2 * r], y: places[2 * r + 1], label, wrong: given[r] !== label });
        if (home && home.task === j) {
          arrows.push({ x0: home.places[2 * r], y0: home.places[2 * r + 1], x: places[2 * r], y: places[2 * r + 1], label });
        }
      });
    }
    return { points, arrows, rivals: pg.rivals(run, i), digits: run.order };
  }

  // A square view that holds nearly all points. It changes in coarse steps only, so that a moving picture keeps still.
  function view({ points, arrows, rivals }) {
    const all = [...points, ...arrows.map((a) => ({ x: a.x0, y: a.y0 })), ...rivals.filter((r) => r.at).map((r) => ({ x: r.at[0], y: r.at[1] }))];
    const range = (axis) => {
      const values = all.map((p) => p[axis]).sort((a, b) => a - b), cut = Math.floor(values.length / 200);
      return [values[cut], values[values.length - 1 - cut]];
    };
    const [x0, x1] = range("x"), [y0, y1] = range("y");
    let half = 1;
    const wanted = Math.min(1e9, Math.max(0.05, 0.56 * Math.max(x1 - x0, y1 - y0)));
    while (half > wanted) half /= 1.3;
    while (half < wanted) half *= 1.3;
    const middle = (a, b) => Math.round((a + b) / 2 / (half / 5)) * (half / 5);
    return { x: middle(x0, x1), y: middle(y0, y1), half };
  }

  // The part of the view in which a class wins: the view, cut by one straight line for each rival. -> corners
  function cell(rivals, k, { x, y, half }) {
    let corners = [[x - half, y - half], [x + half, y - half], [x + half, y + half], [x - half, y + half]];
    rivals.forEach((other, j) => {
      if (j === k) return;
      const ax = rivals[k].a[0] - other.a[0], ay = rivals[k].a[1] - other.a[1], b = rivals[k].b - other.b, kept = [];
      corners.forEach((p, n) => {
        const q = corners[(n + 1) % corners.length], u = ax * p[0] + ay * p[1] + b, v = ax * q[0] + ay * q[1] + b;
        if (u >= 0) kept.push(p);
        if ((u > 0 && v < 0) || (u < 0 && v > 0)) kept.push([p[0] + ((q[0] - p[0]) * u) / (u - v), p[1] + ((q[1] - p[1]) * u) / (u - v)]);
      });
      corners = kept;
    });
    return corners;
  }

  // Where the digit's name goes in its cell: the mean of its own points, kept inside the view.
  function nameOf(points, label, look) {
    const own = points.filter((p) => p.label === label), n = own.length || 1;
    const inside = (v, c) => Math.min(c + 0.9 * look.half, Math.max(c - 0.9 * look.half, v));
    return [inside(own.reduce((s, p) => s + p.x, 0) / n, look.x), inside(own.reduce((s, p) => s + p.y, 0) / n, look.y)];
  }

  function drawPlane(pen, what, look, size, inks) {
    const palette = inks.palette ?? PALETTE;
    const to = (x, y) => [((x - look.x) / look.half + 1) * size / 2, ((look.y - y) / look.half + 1) * size / 2];
    what.rivals.forEach((one, k) => {
      const corners = cell(what.rivals, k, look).map((p) => to(...p));
      if (corners.length > 2) pen.area(corners, palette[one.label], 0.17, inks.edge);
    });
    const far = what.arrows.filter((a) => Math.abs(a.x - a.x0) + Math.abs(a.y - a.y0) > 0.015 * look.half);
    far.forEach((a) => pen.arrow(to(a.x0, a.y0), to(a.x, a.y), inks.ink));
    const labels = [...new Set(what.points.map((p) => p.label))];
    for (const label of labels) {
      const own = what.points.filter((p) => p.label === label);
      pen.dots(own.filter((p) => !p.wrong).map((p) => to(p.x, p.y)), palette[label], label % 2 === 1, size / 62, false, inks);
      pen.dots(own.filter((p) => p.wrong).map((p) => to(p.x, p.y)), palette[label], label % 2 === 1, size / 62, true, inks);
    }
    what.rivals.forEach((one) => { if (one.at) pen.cross(to(...one.at), palette[one.label], size / 45, inks); });
    for (const label of labels) {
      const at = what.rivals.find((r) => r.label === label && r.at)?.at ?? nameOf(what.points, label, look), [x, y] = to(...at);
      pen.name(x + (what.rivals.some((r) => r.at) ? size / 34 : 0), y - (what.rivals.some((r) => r.at) ? size / 34 : 0), String(what.digits[label]), size / 22, inks);
    }
  }

  // --- curves -------------------------------------------------------------------------------------------------------

  const SCALES = { // 0 at the bottom, 1 at the top
    accuracy: { place: (v) => v / 100, ticks: [0, 50, 100] },
    loss: { place: (v) => Math.min(1, Math.max(0, (Math.log10(Math.max(v, 1e-9)) + 2) / 4)), ticks: [0.01, 0.1, 1, 10, 100] },
  };

  // One line a task along the steps. curve: what the engine recorded
  function drawCurves(pen, curve, what, width, height, inks) {
    const left = 34, right = 6, top = 8, bottom = 20, scale = SCALES[what];
    const to = (at, v) => [left + (at / pg.TASKS) * (width - left - right), height - bottom - scale.place(v) * (height - top - bottom)];
    for (const tick of scale.ticks) {
      const [, y] = to(0, tick);
      pen.line([[left, y], [width - right, y]], inks.faint, 1);
      pen.text(left - 6, y + 4, String(tick), "right", inks);
    }
    for (let i = 0; i < pg.TASKS; i++) {
      const [x] = to(i, 0), [middle] = to(i + 0.5, 0);
      if (i) pen.line([[x, top], [x, height - bottom]], inks.faint, 1, [2, 3]);
      pen.text(middle, height - 5, `task ${i + 1}`, "center", inks);
    }
    for (let i = 0; i < pg.TASKS; i++) {
      const own = curve.filter((point) => point[what].length > i).map((point) => to(point.at, point[what][i]));
      if (own.length > 1) pen.line(own, (inks.palette ?? PALETTE)[2 * i], 2.4);
    }
  }

  // --- pens ---------------------------------------------------------------------------------------------------------

  function canvasPen(c) {
    const trace = (points, close) => {
      c.beginPath();
      points.forEach(([x, y], k) => (k ? c.lineTo(x, y) : c.moveTo(x, y)));
      if (close) c.closePath();
    };
    return {
      area(points, colour, alpha, edge) {
        trace(points, true);
        c.globalAlpha = alpha; c.fillStyle = colour; c.fill();
        c.globalAlpha = 1; c.strokeStyle = edge; c.lineWidth = 0.8; c.stroke();
      },
      line(points, colour, width, dash = []) {
        trace(points, false);
        c.setLineDash(dash); c.strokeStyle = colour; c.lineWidth = width; c.lineJoin = "round"; c.stroke();
        c.setLineDash([]);
      },
      arrow([x0, y0], [x, y], colour) {
        const turn = Math.atan2(y - y0, x - x0);
        trace([[x0, y0], [x, y]], false);
        c.globalAlpha = 0.35; c.strokeStyle = colour; c.lineWidth = 1; c.stroke();
        trace([[x - 6 * Math.cos(turn - 0.4), y - 6 * Math.sin(turn - 0.4)], [x, y], [x - 6 * Math.cos(turn + 0.4), y - 6 * Math.sin(turn + 0.4)]], false);
        c.globalAlpha = 0.7; c.stroke(); c.globalAlpha = 1;
      },
      dots(points, colour, square, size, ringed, inks) {
        c.beginPath();
        for (const [x, y] of points) {
          if (square) c.rect(x - size * 0.45, y - size * 0.45, size * 0.9, size * 0.9);
          else { c.moveTo(x + size / 2, y); c.arc(x, y, size / 2, 0, 7); }
        }
        c.fillStyle = colour; c.strokeStyle = inks.halo; c.lineWidth = 0.7;
        c.fill(); c.stroke();
        if (!ringed) return;
        c.beginPath(); // a gap between ring and point: the ring is as light as a light point on a dark page
        for (const [x, y] of points) { c.moveTo(x + size / 2 + 2.6, y); c.arc(x, y, size / 2 + 2.6, 0, 7); }
        c.strokeStyle = inks.ink; c.lineWidth = 1.3; c.stroke();
      },
      cross([x, y], colour, size, inks) {
        for (const [ink, width] of [[inks.halo, 7], [colour, 3.4]]) {
          c.beginPath();
          c.moveTo(x - size, y); c.lineTo(x + size, y); c.moveTo(x, y - size); c.lineTo(x, y + size);
          c.lineCap = "round"; c.strokeStyle = ink; c.lineWidth = width; c.stroke(); c.lineCap = "butt";
        }
      },
      name(x, y, text, size, inks) {
        c.font = `700 ${Math.max(13, size)}px system-ui, sans-serif`; c.textAlign = "center"; c.textBaseline = "middle";
        c.lineJoin = "round"; c.lineWidth = 4; c.strokeStyle = inks.halo; c.strokeText(text, x, y);
        c.fillStyle = inks.ink; c.fillText(text, x, y); c.textBaseline = "alphabetic";
      },
      text(x, y, text, align, inks) {
        c.font = "12px system-ui, sans-serif"; c.textAlign = align; c.fillStyle = inks.ink; c.fillText(text, x, y);
      },
    };
  }

  // The same strokes as SVG, for the picture that needs no scripts.
  function svgPen(out) {
    const short = (v) => String(Math.round(v)), path = (points) => `M${points.map((p) => p.map(short).join(" ")).join("L")}`;
    return {
      area(points, colour, alpha) { out.push(`<path class="pg-a" fill="${colour}" fill-opacity="${alpha}" d="${path(points)}Z"/>`); },
      arrow(from, to) { out.push(`<path class="pg-l" d="${path([from, to])}"/>`); },
      dots(points, colour, square, size, ringed) {
        const d = points.map(([x, y]) => `M${short(x)} ${short(y)}h0`).join("");
        if (!points.length) return;
        if (ringed) out.push(`<path class="pg-r pg-w" d="${d}"/><path class="pg-r pg-g" d="${d}"/>`);
        out.push(`<path class="pg-${square ? "s" : "r"}" stroke="${colour}" d="${d}"/>`);
      },
      cross([x, y], colour, size) { out.push(`<path class="pg-c" stroke="${colour}" d="M${short(x - size)} ${short(y)}h${short(2 * size)}M${short(x)} ${short(y - size)}v${short(2 * size)}"/>`); },
      name(x, y, text) { out.push(`<text x="${short(x)}" y="${short(y + 5)}">${text}</text>`); },
    };
  }

  Object.assign(pg, { PALETTE, accuracyColour, scene, view, cell, drawPlane, drawCurves, canvasPen, svgPen });
})(globalThis.Playground = globalThis.Playground || {});
