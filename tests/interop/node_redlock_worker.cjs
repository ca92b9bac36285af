// A worker with node-redlock: the orders, answers and times are those of worker.py.
"use strict";

const { readFileSync, writeFileSync } = require("node:fs");
const { createInterface } = require("node:readline");
const { setTimeout: sleep } = require("node:timers/promises");
const Redis = require("ioredis");
const { default: Redlock, ExecutionError } = require("redlock");

const HOLD = 1; // milliseconds, as those below
const PAUSE = 4;
const RETRY = [2, 10];
const PATIENCE = 60_000;

const now = () => Number(process.hrtime.bigint()) / 1e9;

let clients = [];
let redlock = null;
let held = null;

async function attempt(name, ttl) {
  try {
    return await redlock.acquire([name], Math.round(ttl * 1000));
  } catch (error) {
    if (error instanceof ExecutionError) return null;
    throw error;
  }
}

async function taken(name, ttl) {
  const until = now() + PATIENCE / 1000;
  for (;;) {
    const lock = await attempt(name, ttl);
    if (lock !== null) return lock;
    if (now() > until) throw new Error(`${name} could not be had`);
    await sleep(RETRY[0] + Math.random() * (RETRY[1] - RETRY[0]));
  }
}

const orders = {
  async open({ urls }) {
    clients = urls.map((url) => new Redis(url));
    // One attempt at a time: between its own attempts it keeps what it got on a minority of the nodes.
    redlock = new Redlock(clients, { retryCount: 0 });
    return null;
  },
  async close() {
    await redlock.quit();
    held = null;
    return null;
  },
  async take({ name, ttl }) {
    const began = now();
    held = await attempt(name, ttl);
    return { held: held !== null, began };
  },
  async release() {
    const began = now();
    await held.release();
    return { began };
  },
  async extend({ ttl }) {
    held = await held.extend(Math.round(ttl * 1000));
    return null;
  },
  async increment({ name, counter, count, ttl }) {
    const holds = [];
    for (let i = 0; i < count; i++) {
      const lock = name === null ? null : await taken(name, ttl);
      const start = now();
      const number = Number(readFileSync(counter, "ascii"));
      await sleep(HOLD);
      writeFileSync(counter, String(number + 1));
      holds.push({ start, end: now() });
      if (name !== null) await lock.release();
      await sleep(Math.random() * PAUSE);
    }
    return { holds };
  },
};

async function serve() {
  for await (const line of createInterface({ input: process.stdin })) {
    const { do: what, ...order } = JSON.parse(line);
    process.stdout.write(JSON.stringify(await orders[what](order)) + "\n");
  }
}

serve().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
