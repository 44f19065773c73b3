// Numbers that are the same on every machine: exp, log and sigmoid from + - * / alone, and seeded random numbers from whole
// numbers alone. (A browser may round Math.exp and Math.log as it likes; plain arithmetic it may not.)
(function (pg) {
  "use strict";

  const LN2_HIGH = 0.693147180369123816490, LN2_LOW = 1.90821492927058770002e-10; // their sum is log 2, to 33 digits
  const INVERSE = Array.from({ length: 16 }, (_, n) => 1 / (n + 1)); // 1, 1/2, 1/3, ...

  const POWERS = [1]; // 2^0, 2^1, ... and behind them, at 1100 and on, 2^0, 2^-1, ...
  for (let k = 1; k < 1024; k++) POWERS[k] = 2 * POWERS[k - 1];
  for (let k = 0; k < 1080; k++) POWERS[1100 + k] = k ? POWERS[1099 + k] / 2 : 1;

  // e^x: x = k log 2 + r with |r| < 0.35, then a Taylor series for e^r.
  function exp(x) {
    if (x < -745) return 0;
    if (x > 709) return Infinity;
    const k = Math.floor(x / (LN2_HIGH + LN2_LOW) + 0.5), r = x - k * LN2_HIGH - k * LN2_LOW;
    let sum = 1;
    for (let n = 13; n >= 0; n--) sum = 1 + r * INVERSE[n] * sum;
    return sum * POWERS[k < 0 ? 1100 - k : k];
  }

  // log x: x = 2^k m with m near 1, then log m = 2 (z + z^3/3 + z^5/5 + ...) with z = (m - 1) / (m + 1).
  function log(x) {
    if (!(x > 0)) return x === 0 ? -Infinity : NaN;
    let k = 0;
    while (x > 1.4142135623730951) { x /= 2; k++; }
    while (x < 0.7071067811865476) { x *= 2; k--; }
    const z = (x - 1) / (x + 1), square = z * z;
    let sum = 0;
    for (let n = 23; n >= 1; n -= 2) sum = sum * square + 1 / n;
    return k * LN2_HIGH + (k * LN2_LOW + 2 * z * sum);
  }

  function sigmoid(x) {
    const small = exp(-Math.abs(x));
    return (x < 0 ? small : 1) / (1 + small);
  }

  // --- random numbers -----------------------------------------------------------------------------------------------

  function hash(text, start) { // FNV-1a
    let h = start;
    for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 16777619);
    return h;
  }

  // A generator that belongs to one purpose of one epoch of one task: what is drawn for one thing never depends on another,
  // so all methods of one seed share first weights, support images and shuffles. Returns uniform numbers in [0, 1). (sfc32)
  function generator(seed, task, epoch, purpose) {
    const name = `${seed}/${task}/${epoch}/${purpose}`;
    let a = hash(name, 2166136261), b = hash(name, a), c = hash(name, b), count = 1;
    const next = () => {
      const t = (a + b + count) | 0;
      count = (count + 1) | 0;
      a = b ^ (b >>> 9);
      b = (c + (c << 3)) | 0;
      c = ((c << 21) | (c >>> 11)) + t | 0;
      return (t >>> 0) / 4294967296;
    };
    for (let i = 0; i < 16; i++) next();
    return next;
  }

  // 0 ... n-1 in random order.
  function permutation(n, draw) {
    const order = Array.from({ length: n }, (_, i) => i);
    for (let i = n - 1; i > 0; i--) {
      const j = Math.floor(draw() * (i + 1));
      [order[i], order[j]] = [order[j], order[i]];
    }
    return order;
  }

  Object.assign(pg, { exp, log, sigmoid, generator, permutation });
})(globalThis.Playground = globalThis.Playground || {});
