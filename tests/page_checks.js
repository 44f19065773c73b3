// What tests/book/test_browser.py asks a page; each function answers with a list of what is wrong, empty when nothing is.
globalThis.checks = (() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const seen = (e) => e.checkVisibility({ checkVisibilityCSS: true, checkOpacity: true });
  const words = (e) => e.textContent.trim().replace(/\s+/g, " ").slice(0, 60);

  // Boxes whose content is wider than they are and that show nothing of it (no shadow at the edge: custom.css), and formulas
  // that do not show their beginning.
  const unseen = () => [...cut(), ...late()];
  const late = () =>
    all(".bd-article div.math > *")
      .filter((e) => e.checkVisibility() && e.getBoundingClientRect().left < e.parentElement.getBoundingClientRect().left - 1)
      .map((e) => `a formula begins outside its box: ${words(e)}`);
  const cut = () =>
    all(".bd-article *")
      .filter((e) => {
        if (!e.clientWidth || e.scrollWidth <= e.clientWidth + 1) return false;
        if (!e.checkVisibility() || e.closest("svg, mjx-container")) return false;
        const style = getComputedStyle(e);
        const shadow = style.backgroundImage.includes("gradient") && /local.*scroll/.test(style.backgroundAttachment);
        return style.overflowX !== "visible" && !shadow;
      })
      .map((e) => `${e.tagName}.${e.className} ${e.scrollWidth} > ${e.clientWidth}: ${words(e)}`);

  // On paper: navigation, what stays folded, more or less than one picture a player, content beyond the edge.
  const CHROME =
    ".bd-header, .bd-header-article, .bd-sidebar-primary, .bd-sidebar-secondary, .prev-next-footer, .bd-footer, .copybtn";
  const FOLDED = ".cm-solution > *, .bd-article .admonition.dropdown > *";
  const NOTHING = "summary, style, script, .admonition-title, .toggle-button, :empty";
  const paper = () => {
    const edge = document.documentElement.clientWidth + 1;
    const players = all(".cm-player").map((player) => [
      player.getAttribute("aria-label"),
      [...player.querySelectorAll(".cm-frame")].filter(seen).length,
      [...player.querySelectorAll("button, input")].filter(seen).length,
    ]);
    const wide = all(".bd-article :is(pre, pre *, table, td, mjx-container, img, svg)").filter(
      (e) => !e.parentElement.closest("svg") && seen(e) && e.getBoundingClientRect().right > edge,
    );
    return [
      ...all(CHROME).filter(seen).map((e) => `navigation: ${e.className}`),
      ...all(FOLDED).filter((e) => !e.matches(NOTHING) && !seen(e)).map((e) => `folded: ${words(e)}`),
      ...players.filter(([, frames]) => frames !== 1).map(([label, frames]) => `${frames} frames: ${label}`),
      ...players.filter(([, , controls]) => controls).map(([label, , controls]) => `${controls} controls: ${label}`),
      ...wide.map((e) => `cut: ${e.tagName} ${words(e)}`),
    ];
  };

  const unfold = () => {
    for (const one of all(".bd-article details")) one.open = true;
  };

  // Many words of code, formulas and rows look alike; axe is shown a few of each kind, or a page would take half a minute.
  const thin = () => {
    const kinds = new Map();
    const enough = (e, most) => {
      const kind = `${e.tagName}.${e.className} in ${e.closest(".admonition, details, .cell_output")?.className}`;
      kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
      return kinds.get(kind) > most;
    };
    for (const e of all(".highlight span")) if (!e.children.length && enough(e, 1)) e.replaceWith(e.textContent);
    for (const e of all(".highlight pre")) e.normalize();
    for (const e of all(".bd-article mjx-container")) if (enough(e, 3)) e.textContent = "x";
    for (const e of all(".bd-article tbody tr:nth-child(n+5):not(:last-child)")) {
      if (!e.querySelector("input, button")) e.remove();
    }
    for (const e of all(".bd-article :is(dd, section > p):not(:has(*))")) if (enough(e, 12)) e.remove();
    for (const e of all(".cm-player .cm-frame svg > *:nth-child(n+40)")) e.remove();
  };

  // axe-core: what is serious or critical. rules: only these.
  const axeFinds = async (rules) => {
    const options = { resultTypes: ["violations"], iframes: false, preload: false };
    const found = await axe.run(document, rules ? { ...options, runOnly: rules } : options);
    const bad = found.violations.filter((one) => ["serious", "critical"].includes(one.impact));
    return bad.map((one) => {
      const places = one.nodes.slice(0, 3).map((node) => `${node.target} ${node.html.slice(0, 120)}`);
      return `${one.id}, ${one.nodes.length} times: ${places.join(" | ")}`;
    });
  };

  // The theme waits before it lets the tab key into boxes that have become too narrow, longer on a busy machine.
  const settled = async () => {
    const shut = () => all("[tabindex='-1']").some((e) => e.scrollWidth > e.clientWidth + 1 && e.matches("pre, div"));
    for (let tries = 0; shut() && tries < 50; tries++) await new Promise((done) => setTimeout(done, 100));
  };

  return { settled, unseen, paper, unfold, thin, axeFinds };
})();
