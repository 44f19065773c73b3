// The search page of Sphinx, mended: the page that answers comes first, and formulas are shown in words.
// Loaded after Sphinx's own scripts and `search_words.js` (made from the glossary by cmlib.teaching.site).
// What is replaced here (Search.query, Search.htmlToText) is held by the browser tests.
(() => {
  const MOST = 3; // answers shown
  const LIKE = 0.5; // the least share of words in common
  const EMPTY = "a about an can do does find get how i me my of on one our show tell use what when where which who why you your".split(" ");
  const SIGNS = {
    alpha: "α", beta: "β", gamma: "γ", delta: "δ", epsilon: "ε", varepsilon: "ε", eta: "η", theta: "θ", lambda: "λ",
    mu: "μ", pi: "π", rho: "ρ", sigma: "σ", tau: "τ", phi: "φ", psi: "ψ", omega: "ω", Delta: "Δ", Sigma: "Σ", Omega: "Ω",
    sum: "Σ", prod: "Π", in: "∈", notin: "∉", le: "≤", leq: "≤", ge: "≥", geq: "≥", ne: "≠", neq: "≠", approx: "≈",
    times: "×", cdot: "·", cdots: "…", dots: "…", ldots: "…", pm: "±", to: "→", rightarrow: "→", mapsto: "→",
    lVert: "‖", rVert: "‖", Vert: "‖", lvert: "|", rvert: "|", mid: "|", infty: "∞", partial: "∂", nabla: "∇",
    top: "T", odot: "⊙", cup: "∪", subset: "⊂", sqrt: "√", ell: "ℓ", langle: "⟨", rangle: "⟩", circ: "∘",
  };
  const SILENT = new Set(
    ("left right big Big bigl bigr Bigl Bigr quad qquad mathbf mathrm mathcal mathbb mathit boldsymbol text textit textbf " +
      "frac dfrac tfrac operatorname displaystyle textstyle limits nonumber notag tag label begin end underbrace overbrace rm bf it").split(" "),
  );

  const PART = String.raw`(\{(?:[^{}]|\{[^{}]*\})*\}|\w)`;
  const FRACTION = new RegExp(String.raw`\\[dt]?frac\s*${PART}\s*${PART}`, "g");

  // LaTeX in words: \frac{a}{b} -> a / b, \overline{c} -> c, \lambda -> λ.
  const inWords = (tex) => {
    let text = tex.replace(/\\(begin|end)\s*\{[^}]*\}(\{[^}]*\})?/g, " ");
    for (let depth = 0; depth < 3; depth++) text = text.replace(FRACTION, "$1 / $2");
    text = text.replace(/\\([A-Za-z]+)/g, (_, name) => SIGNS[name] ?? (SILENT.has(name) ? " " : ` ${name} `));
    text = text.replace(/\\[\\()[\],;:! ]/g, " ").replace(/\\([{}|%&#_$])/g, "$1").replace(/[{}&^~\\]|_(?=\{|\w)/g, " ");
    return text.replace(/\s+/g, " ").trim();
  };
  globalThis.cmInWords = inWords;

  const stemmer = new Stemmer();
  const wordsOf = (text) => {
    const all = splitQuery(text.toLowerCase());
    const kept = all.filter((word) => !EMPTY.includes(word) && !stopwords.includes(word));
    return new Set((kept.length ? kept : all).map((word) => stemmer.stemWord(word)));
  };

  // How much a query and a term have in common: 1 when they are the same words.
  const likeness = (query, term) => {
    const wanted = wordsOf(term);
    const shared = [...wanted].filter((word) => query.has(word)).length;
    return shared / (query.size + wanted.size - shared || 1);
  };

  const answers = (text) => {
    const query = wordsOf(text);
    const rated = SEARCH_WORDS.map((one) => {
      const rates = one.words.map((word) => likeness(query, word));
      const rate = Math.max(...rates);
      return { ...one, rate, word: one.words[rates.indexOf(rate)] };
    });
    return rated.filter((one) => one.rate >= LIKE).sort((a, b) => b.rate - a.rate).slice(0, MOST);
  };

  const item = (one) => {
    const title = Search._index.titles[Search._index.docnames.indexOf(one.page)] ?? one.page;
    const line = document.createElement("li");
    line.className = "cm-answer";
    const link = line.appendChild(document.createElement("a"));
    link.href = one.page + DOCUMENTATION_OPTIONS.LINK_SUFFIX + one.anchor;
    link.textContent = `${one.word}: ${title}`;
    const text = line.appendChild(document.createElement("p"));
    text.className = "context";
    text.textContent = one.text.replace(/\\\((.*?)\\\)/g, (_, tex) => inWords(tex));
    return line;
  };

  const query = Search.query;
  Search.query = (text) => {
    Search.output.append(...answers(text).map(item));
    query(text);
  };

  const NO_TEXT = "svg, .cm-bar, .bd-header-article, #jb-print-docs-body, .prev-next-footer, details.hide";
  const read = Search.htmlToText;
  Search.htmlToText = (html, anchor) => {
    const page = new DOMParser().parseFromString(html, "text/html");
    for (const one of page.querySelectorAll(NO_TEXT)) one.remove();
    for (const one of page.querySelectorAll(".math")) one.textContent = ` ${inWords(one.textContent)} `;
    return read(page.documentElement.outerHTML, anchor).replace(/\s+/g, " ");
  };
})();
