// Special functions: tails of the beta and normal laws, Clopper-Pearson bounds that are never larger than Python's, sha256.
(function (V) {
  "use strict";

  const STEP = 2 ** -33; // Python moves a bound by a few steps of 2^-36; this is more than all of them together
  const TAIL = 2 ** -36;

  // Above 2^18 votes the allowance grows as vauban.numerics.tail_error, a little above it, and the step so that it stays larger
  const tailError = (n) => TAIL * (n > 2 ** 18 ? (1.25 * n) / 2 ** 18 : 1);
  const firstStep = (n) => STEP * (n > 2 ** 20 ? n / 2 ** 18 : 1);

  // log Gamma(n + 1) minus Stirling's formula, for n = 1/2, 1, 3/2, ...
  function stirlingError(n) {
    if (n <= 15) {
      let factorial = Number.isInteger(n) ? 1 : Math.sqrt(Math.PI);
      for (let i = n; i > 0; i--) factorial *= i;
      return Math.log(factorial) - (0.5 * Math.log(2 * Math.PI * n) + n * Math.log(n) - n);
    }
    const nn = n * n;
    return (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / 1188 / nn) / nn) / nn) / nn) / n;
  }

  // x log(x / mean) + mean - x, without cancellation
  function deviance(x, mean) {
    if (Math.abs(x - mean) < 0.1 * (x + mean)) {
      const ratio = (x - mean) / (x + mean);
      let sum = (x - mean) * ratio;
      let term = 2 * x * ratio;
      for (let j = 1; j < 1000; j++) {
        term *= ratio * ratio;
        const next = sum + term / (2 * j + 1);
        if (next === sum) break;
        sum = next;
      }
      return sum;
    }
    return x * Math.log(x / mean) + mean - x;
  }

  // The probability of x successes in n tries, 0 < x < n, by the saddle-point expansion; x and n may be halves
  function binomial(x, n, p, q) {
    const log = stirlingError(n) - stirlingError(x) - stirlingError(n - x) - deviance(x, n * p) - deviance(n - x, n * q);
    return Math.exp(log) * Math.sqrt(n / (2 * Math.PI * x * (n - x)));
  }

  function continuedFraction(a, b, x) {
    const tiny = 1e-300;
    const guard = (value) => (Math.abs(value) < tiny ? tiny : value);
    let c = 1;
    let d = 1 / guard(1 - ((a + b) * x) / (a + 1));
    let h = d;
    for (let m = 1; m < 1e6; m++) {
      const even = (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m));
      d = 1 / guard(1 + even * d);
      c = guard(1 + even / c);
      h *= d * c;
      const odd = (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1));
      d = 1 / guard(1 + odd * d);
      c = guard(1 + odd / c);
      const change = d * c;
      h *= change;
      if (Math.abs(change - 1) < 2e-16) break;
    }
    return h;
  }

  // x^a (1-x)^b / B(a, b) for a and b = 1/2, 1, 3/2, ...
  function betaWeight(a, b, x) {
    return (binomial(a, a + b, x, 1 - x) * a * b) / (a + b);
  }

  // The regularised incomplete beta function I_x(a, b) for whole a, b >= 1
  function betainc(a, b, x) {
    if (x <= 0) return 0;
    if (x >= 1) return 1;
    if (x < (a + 1) / (a + b + 2)) return (betaWeight(a, b, x) * continuedFraction(a, b, x)) / a;
    return 1 - upperTail(a, b, x);
  }

  // p with I_p(a, b) = alpha: Newton's method on the logarithm, inside a bracket
  function betaRoot(a, b, alpha) {
    let low = 0;
    let high = 1;
    let p = b === 1 ? Math.exp(Math.log(alpha) / a) : a / (a + b);
    for (let i = 0; i < 300; i++) {
      const value = betainc(a, b, p);
      if (value > alpha) high = Math.min(high, p);
      else low = Math.max(low, p);
      const slope = betaWeight(a, b, p) / (p * (1 - p));
      let next = value > 0 && slope > 0 ? p - (Math.log(value / alpha) * value) / slope : NaN;
      if (!(next > low && next < high)) next = low + (high - low) / 2;
      if (Math.abs(next - p) <= 2 ** -52 * Math.min(p, 1 - p) || next === low || next === high) return next;
      p = next;
    }
    return low;
  }

  // Clopper-Pearson's lower bound, rounded down, and below the one that Python computes
  function lowerBound(wins, n, alpha) {
    if (wins === 0) return 0;
    const a = wins;
    const b = n - wins + 1;
    let step = firstStep(n);
    let p = betaRoot(a, b, alpha);
    do {
      p = Math.max(0, p - step * Math.min(p, 1 - p) - 2 ** -51 * (p > 0.5 ? 1 : p));
      step *= 2;
    } while (betainc(a, b, p) > alpha * (1 - tailError(n)));
    return p;
  }

  // Clopper-Pearson's upper bound, rounded up, and above the one that Python computes
  function upperBound(wins, n, alpha) {
    if (wins >= n) return 1;
    const a = wins + 1;
    const b = n - wins;
    let step = firstStep(n);
    let p = upperRoot(a, b, alpha, a / (a + b));
    do {
      p = Math.min(1, p + step * Math.min(p, 1 - p) + 2 ** -51 * p);
      step *= 2;
    } while (upperTail(a, b, p) > alpha * (1 - tailError(n)));
    return p;
  }

  // p with 1 - I_p(a, b) = alpha, in the same way
  function upperRoot(a, b, alpha, start) {
    let low = 0;
    let high = 1;
    let p = start;
    for (let i = 0; i < 300; i++) {
      const value = upperTail(a, b, p);
      if (value > alpha) low = Math.max(low, p);
      else high = Math.min(high, p);
      const slope = betaWeight(a, b, p) / (p * (1 - p));
      let next = value > 0 && slope > 0 ? p + (Math.log(value / alpha) * value) / slope : NaN;
      if (!(next > low && next < high)) next = low + (high - low) / 2;
      if (Math.abs(next - p) <= 2 ** -52 * p || next === low || next === high) return next;
      p = next;
    }
    return high;
  }

  // 1 - I_x(a, b), accurate where it is small
  function upperTail(a, b, x) {
    if (x >= 1) return 0;
    if (x < (a + 1) / (a + b + 2)) return 1 - (betaWeight(a, b, x) * continuedFraction(a, b, x)) / a;
    return (betaWeight(a, b, x) * continuedFraction(b, a, 1 - x)) / b;
  }

  // The e-process of vauban/bounds/eprocess.py: log E_t(p) for `wins` in `votes`, rounded down
  function logE(wins, votes, p) {
    const a = wins + 0.5;
    const b = votes - wins + 0.5;
    const prior = 2 * Math.atan2(Math.sqrt(1 - p), Math.sqrt(p));
    const value = Math.log(Math.sqrt(p * (1 - p)) / betaWeight(a, b, p)) + Math.log(upperTail(a, b, p) / prior);
    return value - tailError(votes) - 1.0625 * 2 ** -48 * (votes + 1) * Math.log(votes + 3); // Python subtracts 2^-48 of it
  }

  // The largest p below the share of wins with E >= 1 / alpha, by bisection, rounded down and below Python's
  function anytimeBound(wins, votes, alpha) {
    const enough = (p) => logE(wins, votes, p) >= -Math.log(alpha);
    let low = 0;
    let high = wins / votes;
    for (let i = 0; i < 200; i++) {
      const middle = (low + high) / 2;
      if (middle <= low || middle >= high) break;
      if (enough(middle)) low = middle;
      else high = middle;
    }
    return Math.max(0, low - STEP * Math.min(low, 1 - low) - 2 ** -51 * low);
  }

  // The normal law's distribution function
  function Phi(x) {
    if (x === Infinity) return 1;
    if (x === -Infinity) return 0;
    const density = Math.exp((-x * x) / 2) / Math.sqrt(2 * Math.PI);
    if (Math.abs(x) <= 2) {
      let term = x;
      let sum = x;
      for (let i = 3; Math.abs(term) > 1e-18 * Math.abs(sum); i += 2) {
        term *= (x * x) / i;
        sum += term;
      }
      return 0.5 + density * sum;
    }
    const z = Math.abs(x); // Mills' ratio by its continued fraction, from the end
    let fraction = z;
    for (let i = Math.ceil(40 + 500 / (z * z)); i > 0; i--) fraction = z + i / fraction;
    return x < 0 ? density / fraction : 1 - density / fraction;
  }

  // The inverse of Phi
  function PhiInverse(p) {
    if (p <= 0) return -Infinity;
    if (p >= 1) return Infinity;
    if (p > 0.5) return -PhiInverse(1 - p);
    const t = Math.sqrt(-2 * Math.log(p));
    let z = -(t - (2.30753 + 0.27061 * t) / (1 + 0.99229 * t + 0.04481 * t * t));
    for (let i = 0; i < 5; i++) {
      const density = Math.exp((-z * z) / 2) / Math.sqrt(2 * Math.PI);
      const step = (Phi(z) - p) / density;
      z -= step / (1 + (z * step) / 2);
    }
    return z;
  }

  // Least q with P[Binomial(m, alpha) > q] <= rho
  function falseClaims(m, alpha, rho) {
    if (alpha === 0) return 0;
    for (let q = 0; q < m; q++) if (betainc(q + 1, m - q, alpha) * (1 + 1e-9) <= rho) return q;
    return m;
  }

  const ROUND = (() => {
    const found = [];
    for (let n = 2; found.length < 64; n++) {
      if (found.every((prime) => n % prime)) found.push(n);
    }
    return found;
  })();
  // The first 32 binary digits of the fraction of a root of a prime, by whole numbers
  function rootDigits(prime, power) {
    const target = BigInt(prime) << BigInt(32 * power);
    let low = 0n;
    let high = 1n << 40n;
    while (high - low > 1n) {
      const middle = (low + high) >> 1n;
      if (middle ** BigInt(power) <= target) low = middle;
      else high = middle;
    }
    return Number(low & 0xffffffffn);
  }
  const K = ROUND.map((prime) => rootDigits(prime, 3));
  const START = ROUND.slice(0, 8).map((prime) => rootDigits(prime, 2));

  // The sha256 of bytes (or of text as UTF-8), in hex
  function sha256(data) {
    const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
    const padded = new Uint8Array(((bytes.length + 72) >> 6) << 6);
    padded.set(bytes);
    padded[bytes.length] = 0x80;
    const view = new DataView(padded.buffer);
    view.setUint32(padded.length - 8, Math.floor(bytes.length / 2 ** 29));
    view.setUint32(padded.length - 4, (bytes.length << 3) >>> 0);
    const h = START.slice();
    const w = new Int32Array(64);
    const turn = (x, by) => (x >>> by) | (x << (32 - by));
    for (let at = 0; at < padded.length; at += 64) {
      for (let i = 0; i < 16; i++) w[i] = view.getInt32(at + 4 * i);
      for (let i = 16; i < 64; i++) {
        const s0 = turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ (w[i - 15] >>> 3);
        const s1 = turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ (w[i - 2] >>> 10);
        w[i] = (w[i - 16] + s0 + w[i - 7] + s1) | 0;
      }
      let [a, b, c, d, e, f, g, last] = h;
      for (let i = 0; i < 64; i++) {
        const s1 = turn(e, 6) ^ turn(e, 11) ^ turn(e, 25);
        const one = (last + s1 + ((e & f) ^ (~e & g)) + K[i] + w[i]) | 0;
        const s0 = turn(a, 2) ^ turn(a, 13) ^ turn(a, 22);
        const two = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
        [last, g, f, e, d, c, b, a] = [g, f, e, (d + one) | 0, c, b, a, (one + two) | 0];
      }
      [a, b, c, d, e, f, g, last].forEach((value, i) => {
        h[i] = (h[i] + value) | 0;
      });
    }
    return h.map((value) => (value >>> 0).toString(16).padStart(8, "0")).join("");
  }

  Object.assign(V, { betainc, lowerBound, upperBound, anytimeBound, Phi, PhiInverse, falseClaims, sha256 });
})((globalThis.Vauban ??= {}));
