// node-redlock 5.0.0-beta.2 on ioredis, the most common Redlock of Node.js services: the requests of worker.py.
//
// With its defaults (retryDelay 200 ms, retryJitter 100 ms, driftFactor 0.01), except for retryCount: -1 means no limit,
// because every contender here waits until it has the lock. Between its attempts it keeps its votes on a minority of
// the nodes, so processes that contend for one name can all wait until those expire. Repeated calls with its ten
// attempts were no better. `using` is not measured: this worker has only the requests that every worker has.
"use strict";

const { createInterface } = require("node:readline");
const Redis = require("ioredis");
const { default: Redlock } = require("redlock");

const TTL = 10_000; // milliseconds, as TTL in __init__.py
const WARM_UP = 0.05; // seconds, as those below
const WAITING = { retryCount: -1 };
const HUNDREDTHS = Array.from({ length: 100 }, (_, i) => i / 100);
const DISTRIBUTION = [...HUNDREDTHS, 0.995, 0.999, 1];

// CLOCK_MONOTONIC, which all processes of a machine share.
const now = () => Number(process.hrtime.bigint()) / 1e9;

let redlock = null;
let held = null;

const acquire = (name) => redlock.acquire([name], TTL, WAITING);

// Acquires and releases until the time is up, at least once, or that many times. Records each duration in seconds.
async function pairs(name, end, most, shared, took) {
  for (let done = 1; ; done++) {
    const started = now();
    const lock = await acquire(name);
    const acquired = now();
    await lock.release();
    const ended = now();
    took.push((shared ? acquired : ended) - started);
    if (ended >= end || done === most) return;
  }
}

async function batch(base, { tasks, shared }, end, most, took) {
  const names = Array.from({ length: tasks }, (_, i) => (shared ? base : `${base}:${i}`));
  await Promise.all(names.map((name) => pairs(name, end, most, shared, took)));
}

function quantile(ranked, part) {
  return ranked[Math.min(Math.floor(ranked.length * part), ranked.length - 1)];
}

function sample(took, seconds) {
  const ranked = took.map((each) => each * 1e6).sort((a, b) => a - b);
  return {
    rate: ranked.length / seconds,
    n: ranked.length,
    p50: quantile(ranked, 0.5),
    p99: quantile(ranked, 0.99),
    latencies: DISTRIBUTION.map((part) => quantile(ranked, part)),
  };
}

const verbs = {
  async open({ urls }) {
    redlock = new Redlock(urls.map((url) => new Redis(url)));
    // It reports errors of single nodes here; they count only if the whole operation fails.
    redlock.on("error", () => {});
    await pairs(`bench:warm:${process.pid}`, now() + WARM_UP, undefined, false, []);
    return {};
  },
  async pairs({ base, seconds, each, ...rest }) {
    const took = [];
    const started = now();
    const end = started + seconds;
    if (each) {
      // Whole batches if they contend, so that all tasks take part until the end.
      const last = rest.shared ? Infinity : end;
      for (let i = 0; i === 0 || now() < end; i++) await batch(`${base}:${i}`, rest, last, each, took);
    } else {
      await batch(base, rest, end, undefined, took);
    }
    return sample(took, now() - started);
  },
  async acquire({ name }) {
    held = await acquire(name);
    return { at: now() };
  },
  async release() {
    const at = now();
    await held.release();
    return { at };
  },
};

async function answer({ do: verb, ...request }) {
  if (!Object.hasOwn(verbs, verb)) return { error: `node-redlock's worker does not know ${JSON.stringify(verb)}` };
  try {
    return await verbs[verb](request);
  } catch (error) {
    return { error: `${error.name}: ${error.message}` };
  }
}

async function serve() {
  for await (const line of createInterface({ input: process.stdin })) {
    process.stdout.write(JSON.stringify(await answer(JSON.parse(line))) + "\n");
  }
}

serve().then(() => process.exit(0));
