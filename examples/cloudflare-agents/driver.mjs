// Drives ChatRecoveryEngine of the released npm package `agents` through the incident machine of Deadreckon.
//
//   deadreckon conform incident --scope overlap -- node examples/cloudflare-agents/driver.mjs [--serial] [--hide PATH,...]
//
// The engine is the released code, unchanged. This file is what surrounds it: a store that buffers, syncs and crashes, a
// clock, the queue of callbacks, and as much of the host (AIChatAgent 0.12.2 was read for it) as the engine talks to.
//
//   --serial    a storage read and the write that follows take no time, so that admissions never overlap
//   --hide ...  paths (or beginnings of paths) that are not shown, to find what follows from a difference there
//   --predicate lets shouldKeepRecovering decline (the engine asks it for replays only)
//   --without ...  actions that are left out, so that walks get further with the others
//   --no-host   leaves out the host's own check that the conversation has moved on, which comes after the engine's
//
// How the engine is held at a point: it runs until it waits for the adapter, and an action of the machine lets it go on.
//
//   replay, deliver   the engine reads, decides and writes; unless --serial, the write takes effect only before the next sync
//   sync              all writes become durable, and whoever waits for syncStorage() goes on
//   start_work        the engine has called run() or onChatRecovery(): only then is it granted
//   finish            that call returns
//   report            the engine's promise has settled
//   deliver_terminal  the adapter's exhaustChatRecovery() writes the terminal record; seal lets it return

import { AsyncLocalStorage } from "node:async_hooks";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import { ChatRecoveryEngine, resolveChatRecoveryConfig, sweepStaleChatRecoveryIncidents } from "agents/chat";

const { values: flags } = parseArgs({
  options: { serial: { type: "boolean" }, "no-host": { type: "boolean" }, predicate: { type: "boolean" }, hide: { type: "string", default: "" }, without: { type: "string", default: "" } },
});
const HIDDEN = flags.hide.split(",").filter(Boolean);
const SLOTS = 3;
const TTL_MS = 3_600_000; // fixed in the package; the machine's record_ttl_ms is scaled to it
const PREFIX = "chat";
const RECORD = "cf:chat-recovery:incident:";
const KEY = RECORD + encodeURIComponent("turn:"); // the incident of request "turn", without a user message
const flow = new AsyncLocalStorage(); // which attempt calls the adapter

class Refused extends Error {}
class Unable extends Error {}
const refuse = (why) => { throw new Refused(why); };
const unable = (why) => { throw new Unable(why); };

/** A promise that somebody else resolves. */
function gate() {
  let open;
  const passed = new Promise((resolve) => { open = resolve; });
  return { open, passed };
}

/** Durable object storage: writes are buffered, read back at once, and made durable by a sync. */
class Storage {
  durable = new Map();
  buffered = new Map();
  alive = true;
  waiting = [];

  handle() {
    const life = { over: false };
    const guard = () => { if (life.over) throw new Error("the durable object was reset"); };
    return {
      life,
      get: async (key) => { guard(); return structuredClone(this.buffered.get(key)); },
      put: async (key, value) => { guard(); this.buffered.set(key, structuredClone(value)); },
      delete: async (keys) => { guard(); for (const key of [keys].flat()) this.buffered.delete(key); },
      list: async ({ prefix }) => {
        guard();
        return new Map([...this.buffered].filter(([key]) => key.startsWith(prefix)).map((one) => structuredClone(one)));
      },
      sync: async () => { guard(); const synced = gate(); this.waiting.push(synced); await synced.passed; },
    };
  }

  sync() {
    this.durable = structuredClone(this.buffered);
    for (const one of this.waiting.splice(0)) one.open();
  }

  crash() {
    this.buffered = structuredClone(this.durable);
    this.waiting = [];
  }
}

/** The durable object and its surroundings: what the machine calls State. */
class World {
  constructor(policy) {
    const number = (limit) => (limit === "unlimited" ? Infinity : limit);
    this.scale = TTL_MS / policy.record_ttl_ms;
    this.config = {
      ...resolveChatRecoveryConfig({
        maxInterruptedAttempts: number(policy.max_interrupted_attempts),
        maxAttempts: number(policy.max_attempts),
        noProgressTimeoutMs: number(policy.no_progress_timeout_ms) * this.scale,
        maxRecoveryWork: number(policy.max_recovery_work),
      }),
      shouldKeepRecovering: async () => flow.getStore()?.keepGoing ?? true,
    };
    this.storage = new Storage();
    this.storage.durable.set("turn", "NEW");
    this.storage.crash();
    this.incarnation = 0;
    this.alive = false;
    this.queued = false;
    this.produced = 0;
    this.now = 0;
    this.owners = new Map(); // isolate -> incarnation
    this.places = new Map(); // token of an entry -> slot
    this.#forget();
  }

  #forget() {
    this.attempts = Array(SLOTS).fill(null);
    this.original = "IDLE";
    this.stall = null;
    this.held = [];
  }

  get record() { return this.storage.buffered.get(KEY); }
  get turn() { return this.storage.buffered.get("turn"); }

  // The adapter, for one incarnation.

  boot() {
    if (this.alive) refuse("an incarnation lives already");
    this.alive = true;
    this.incarnation += 1;
    const store = this.storage.handle();
    this.life = store.life;
    this.store = store;
    this.engine = new ChatRecoveryEngine({
      resolveConfig: () => this.config,
      now: () => this.now,
      sweepStaleIncidents: (now) => sweepStaleChatRecoveryIncidents(store, now),
      getIncident: async (key) => (await store.get(key)) ?? null,
      putIncident: (key, incident) => this.#put(store, key, incident),
      deleteIncident: (key) => store.delete(key),
      syncStorage: () => store.sync(),
      readProgress: async () => this.produced,
      isAwaitingClientInteraction: () => this.storage.buffered.get("parked") === true,
      scheduleRecovery: async () => { this.queued = true; },
      setRecovering: async () => {},
      emitRecoveryEvent: () => {},
      resolveRecoveryStream: () => ({ streamId: "", streamStillActive: false }),
      getPartialStreamText: () => ({ text: "", parts: [], hasSettledToolResults: false }),
      exhaustChatRecovery: () => this.#exhaust(store),
      activeChatRecoveryRootRequestId: () => undefined,
      onGiveUpBookkeepingError: () => {},
    });
  }

  /** A write. That of an admission may be held, since a storage read may take a while to come back. */
  async #put(store, key, incident) {
    const attempt = flow.getStore();
    const own = (incident.attemptsInFlight ?? []).filter(({ token }) => !this.places.has(token));
    for (const { token, isolate } of own) {
      this.owners.set(isolate, this.incarnation);
      this.places.set(token, attempt.slot);
    }
    if (attempt && !attempt.decided) {
      attempt.decided = true;
      attempt.entered = own.length > 0;
      attempt.phase = attempt.entered ? "ADMITTED" : "GIVING_UP";
      if (!flags.serial) {
        const released = gate();
        this.held.push(released);
        await released.passed;
      }
    }
    await store.put(key, incident);
  }

  async #exhaust(store) {
    const attempt = flow.getStore();
    attempt.at = "terminal";
    await attempt.terminal.passed;
    await store.put("terminal", true);
    attempt.at = "seal";
    await attempt.seal.passed;
  }

  /** The writes that were held take effect, in the order in which they were asked for. */
  async release() {
    for (const released of this.held.splice(0)) {
      released.open();
      await settled();
    }
  }

  // The original turn.

  begin() {
    if (!this.alive) refuse("no incarnation lives");
    if (this.turn !== "NEW") refuse("the turn has been started before");
    this.storage.buffered.set("turn", "RUNNING");
    this.storage.durable.set("turn", "RUNNING");
    this.original = "HEAVY";
  }

  async end_original({ outcome }) {
    if (this.original !== "HEAVY") refuse("the original turn does not run here");
    this.original = "FINISHING";
    if (outcome === "DONE") {
      await this.store.put("turn", "FINISHED");
      this.stall = { over: false, done: true };
      return;
    }
    this.stall = { over: false };
    this.#run(this.stall, async () => {
      const { incident } = await this.engine.beginIncident({
        requestId: "turn", recoveryRootRequestId: "turn", recoveryKind: "continue", trigger: "stalled",
      });
      await this.engine.scheduleRecovery({
        incident, recoveryKind: "continue", callback: "_chatRecoveryContinue", data: { incidentId: incident.incidentId },
      });
    });
  }

  report_original() {
    if (this.original !== "FINISHING") refuse("the original turn has not ended here");
    const durable = this.stall.done ? this.storage.durable.get("turn") === "FINISHED" : this.stall.over;
    if (!durable) refuse("its end is not durable yet");
    this.original = "IDLE";
  }

  // Attempts.

  #run(attempt, work) {
    flow.run(attempt, async () => {
      try {
        await work();
      } catch (error) {
        attempt.failed = error; // of a dead incarnation, or told by the action that waits for it
      }
      attempt.over = true;
    });
  }

  #attempt(slot, keepGoing, kind) {
    if (!this.alive) refuse("no incarnation lives");
    if (this.attempts[slot] !== null) refuse("the slot is taken by another attempt");
    return {
      slot, keepGoing, kind, decided: false, entered: false, over: false, at: "", phase: "ADMITTED",
      work: gate(), terminal: gate(), seal: gate(), outcome: null,
    };
  }

  async replay({ slot, keep_going }) {
    const attempt = this.#attempt(slot, keep_going, "replay");
    if (this.original !== "IDLE") refuse("the original turn is alive in this incarnation");
    if (this.turn !== "RUNNING") refuse("there is no unfinished turn to replay");
    if (this.record?.status === "exhausted" && this.storage.buffered.get("sealed")) refuse("the turn run was settled with the seal");
    const context = { id: "chat_turn", name: `${PREFIX}:turn`, snapshot: null, createdAt: 0, recoveryReason: "interrupted" };
    this.#run(attempt, () => this.engine.handleChatFiberRecovery(context, {
      chatFiberPrefix: () => `${PREFIX}:`,
      unwrapRecoverySnapshot: () => ({ snapshot: null, recoveryData: null }),
      classifyRecoveredTurn: async () => ({ recoveryKind: "continue", detail: null }),
      shouldPersistOrphanedPartial: async () => false,
      persistOrphanedStream: async () => {},
      completeRecoveredStream: async () => {},
      invokeOnChatRecovery: async () => { await this.#work(attempt); return {}; },
      dispatchRecoveredTurn: async ({ incident }) => { await this.#end(attempt, incident); },
    }));
    await settled();
    if (attempt.failed) throw attempt.failed;
    this.attempts[slot] = attempt;
  }

  async deliver({ slot, again, keep_going }) {
    const attempt = this.#attempt(slot, keep_going, "callback");
    if (!this.queued) unable("no callback is queued"); // the engine enqueues later than the machine: once it has synced
    if (!flags["no-host"] && this.turn === "FINISHED") refuse("the conversation has moved on");
    const data = { incidentId: "turn:" };
    this.#run(attempt, () => this.engine.runRecoveryAttempt({
      callback: "_chatRecoveryContinue",
      data,
      run: async () => {
        attempt.decided = true;
        await this.#work(attempt);
        await this.#end(attempt, this.record ?? { incidentId: "turn:", requestId: "turn" });
      },
    }));
    await settled();
    if (attempt.failed) throw attempt.failed;
    if (!attempt.decided) {
      if (!this.storage.buffered.get("sealed")) unable("the engine leaves it to the replay that gave up");
      refuse("the incident is sealed");
    }
    this.queued = again;
    this.attempts[slot] = attempt;
  }

  /** Where the engine hands over to what may kill the incarnation. */
  async #work(attempt) {
    attempt.at = "work";
    await attempt.work.passed;
  }

  /** What the host does when the work has ended, before the engine takes the entry away. */
  async #end(attempt, incident) {
    if (attempt.outcome === "DONE") {
      await this.engine.updateIncident(incident.incidentId, "completed");
      await this.store.put("turn", "FINISHED");
      return;
    }
    if (attempt.outcome === "TRANSIENT") await this.engine.recordTransientRetry(incident.incidentId);
    await this.engine.scheduleRecovery({
      incident, recoveryKind: "continue", callback: "_chatRecoveryContinue", data: { incidentId: incident.incidentId },
    });
  }

  start_work({ slot }) {
    const attempt = this.attempts[slot];
    if (attempt?.phase !== "ADMITTED" || attempt.at !== "work") refuse("the engine has not handed over");
    if (!flags["no-host"] && this.turn === "FINISHED") refuse("the conversation has moved on");
    attempt.phase = "HEAVY";
  }

  progress({ units }) {
    if (this.original !== "HEAVY" && !this.attempts.some((one) => one?.phase === "HEAVY")) refuse("no heavy work runs");
    this.produced += units;
  }

  async finish({ slot, outcome }) {
    const attempt = this.attempts[slot];
    if (attempt?.phase !== "ADMITTED" && attempt?.phase !== "HEAVY") refuse("no attempt runs in this slot");
    if (attempt.at !== "work") unable("the engine waits for its store");
    attempt.outcome = outcome;
    attempt.phase = "FINISHING";
    attempt.work.open();
    await settled();
    if (attempt.failed) throw attempt.failed;
  }

  report({ slot }) {
    const attempt = this.attempts[slot];
    if (attempt?.phase !== "FINISHING") refuse("no attempt has ended in this slot");
    if (!attempt.over) refuse("the engine has not returned yet");
    this.attempts[slot] = null;
  }

  // The way to the seal.

  async deliver_terminal({ slot }) {
    const attempt = this.attempts[slot];
    if (attempt?.phase === "GIVING_UP" && attempt.at === "") unable("the engine waits for its store");
    if (attempt?.at !== "terminal") refuse("the engine does not give up here");
    if (this.storage.buffered.get("terminal")) refuse("it is told already");
    attempt.terminal.open();
    await settled();
  }

  async seal({ slot }) {
    const attempt = this.attempts[slot];
    if (attempt?.phase !== "GIVING_UP" || this.storage.buffered.get("sealed")) refuse("nothing is to be sealed here");
    // The store keeps the order of writes: the seal is never durable before the terminal record is.
    if (!this.storage.durable.get("terminal")) refuse("the terminal record is not durable yet");
    attempt.terminal.open();
    attempt.seal.open();
    await settled();
    if (this.record?.status !== "exhausted") throw new Error(`the engine leaves the incident ${this.record?.status}`);
    await this.store.put("sealed", true);
  }

  async stand_down({ slot }) {
    const attempt = this.attempts[slot];
    if (attempt?.phase !== "GIVING_UP") refuse("no attempt gives up in this slot");
    if (!this.storage.buffered.get("sealed") && this.turn !== "FINISHED") refuse("the incident is not sealed yet");
    if (!attempt.over && attempt.at === "") unable("the engine waits for its store");
    attempt.terminal.open();
    attempt.seal.open();
    await settled();
    this.attempts[slot] = null;
  }

  // A person is waited for while work that asked for it runs; the answer comes when it comes.

  async park() {
    if (!this.attempts.some((one) => one?.phase === "HEAVY")) unable("only a turn at work asks a person");
    if (this.storage.buffered.get("parked") || !this.record) refuse("parked already, or no incident");
    await this.store.put("parked", true);
  }

  async unpark() {
    if (!this.alive || !this.record || !this.storage.buffered.get("parked")) refuse("nobody is waited for");
    await this.store.put("parked", false);
  }

  // What befalls the object.

  async sweep() {
    if (!this.alive) refuse("no incarnation lives");
    if (!this.record && this.turn === "FINISHED") unable("a finished incident's record is gone already");
    if (this.record && !this.storage.durable.has(KEY)) unable("the machine sweeps what is durable");
    const before = this.storage.buffered.size;
    await sweepStaleChatRecoveryIncidents(this.store, this.now);
    if (this.storage.buffered.size === before) refuse("no record is stale");
  }

  async sync() {
    await this.release();
    this.storage.sync();
    await settled();
  }

  crash() {
    if (!this.alive) refuse("no incarnation lives");
    this.alive = false;
    this.life.over = true;
    if (this.stall && !this.stall.over && !this.stall.done) this.queued = false; // it was never enqueued
    this.storage.crash();
    this.#forget();
  }

  deploy() {
    this.crash();
  }

  tick({ elapsed_ms }) {
    this.now += elapsed_ms * this.scale;
  }

  // What can be seen.

  observe() {
    const shown = {
      alive: this.alive,
      incarnation: this.incarnation,
      original: this.original,
      produced: this.produced,
      now_ms: this.now / this.scale,
      "durable.turn": this.storage.durable.get("turn"),
    };
    for (let slot = 0; slot < SLOTS; slot += 1) shown[`phases[${slot}]`] = this.attempts[slot]?.phase ?? "IDLE";
    Object.assign(shown, this.#shown("durable", this.storage.durable));
    if (this.held.length === 0) {
      Object.assign(shown, this.#shown("buffered", this.storage.buffered), { "buffered.turn": this.turn });
    }
    return Object.fromEntries(Object.entries(shown).filter(([path]) => !HIDDEN.some((one) => path.startsWith(one))));
  }

  #shown(name, values) {
    const record = values.get(KEY);
    const shown = { [`${name}.terminal_delivered`]: values.get("terminal") === true };
    // A finished incident's record is deleted; what the machine keeps of it can't be compared.
    if (!record && values.get("turn") === "FINISHED") return shown;
    shown[`${name}.interrupted`] = record?.interruptedAttempts ?? 0;
    for (let slot = 0; slot < SLOTS; slot += 1) shown[`${name}.attempts[${slot}]`] = 0;
    for (const { isolate, token } of record?.attemptsInFlight ?? []) {
      shown[`${name}.attempts[${this.places.get(token)}]`] = this.owners.get(isolate);
    }
    if (!record) shown[`${name}.status`] = "ABSENT";
    else if (values.get("sealed")) shown[`${name}.status`] = "SEALED";
    else if (record.status !== "exhausted") shown[`${name}.status`] = "OPEN";
    if (record) shown[`${name}.transient_retries`] = record.transientRetries ?? 0;
    if (record && record.status !== "exhausted") shown[`${name}.parked`] = values.get("parked") === true;
    return shown;
  }
}

/** Let every flow go on until it waits for something that an action gives. */
const settled = () => new Promise((resolve) => setImmediate(resolve));

const CANNOT = ["call_from_the_dead", ...flags.without.split(",").filter(Boolean)]; // that a reset object can't write is the platform's promise, not the engine's
if (!flags.predicate) for (const action of ["replay", "deliver"]) CANNOT.push({ action, inputs: { keep_going: false } });

async function act(world, { action, inputs }) {
  await world[action](inputs);
  await settled();
}

let world = null;
for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  let answer = { ok: true };
  if (request.do === "init") {
    world = new World(request.policy);
    answer = { ok: true, cannot: CANNOT, never_refuses: ["sync"] };
  } else if (request.do === "observe") {
    answer = { state: world.observe() };
  } else if (request.do === "act") {
    try {
      await act(world, request);
    } catch (error) {
      if (error instanceof Unable) answer = { unable: true, why: error.message };
      else answer = { refused: true, why: error instanceof Refused ? error.message : String(error.stack) };
    }
  }
  process.stdout.write(`${JSON.stringify({ id: request.id, ...answer })}\n`);
}
