globalThis.Playground = globalThis.Playground || {};
Playground.CHOSEN = {};
