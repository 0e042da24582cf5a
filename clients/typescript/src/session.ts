// A session: a connection to the broker that comes back whenever it is lost.
//
// Owns the addresses and the waits between two tries. What to send again is decided by those who
// use it: they are called when a connection is open.

import { setTimeout as pause } from "node:timers/promises";

import { parseAddress, parsePlace, type Parsed, type Place, type Reach } from "./address.js";
import { Connection, Redirected } from "./connection.js";
import { ConnectionLost, JackalopeError, ProtocolError, Refused } from "./errors.js";

const BACKOFF_MS = { first: 50, last: 5_000, severalLast: 1_000 };

/** After so many answers in a row that another member leads, the cluster has no leader for now. */
const MOVES_MAX = 5;

/** Refusals of HELLO that trying again does not change. */
const FINAL = new Set(["unauthorised", "forbidden", "invalid"]);

export interface User {
  opened(connection: Connection): void;
  heard(kind: number, fields: unknown[], connection: Connection): void;
  lost(): void;
  /** The session is over: the broker does not let this peer in. */
  ended(why: JackalopeError): void;
}

export class Session {
  #parsed: Parsed;
  #reach: Reach;
  #user: User;
  #connection: Connection | null = null;
  #waiting: { resolve(connection: Connection): void; reject(error: Error): void }[] = [];
  #over: JackalopeError | null = null;
  #wasOpen = false;
  #members: Place[] = [];
  #stop = new AbortController();

  constructor(reach: Reach, user: User) {
    this.#parsed = parseAddress(reach.address);
    this.#reach = reach;
    this.#user = user;
  }

  start(): void {
    void this.#connect();
  }

  /** The open connection, or null. */
  get connection(): Connection | null {
    return this.#connection;
  }

  /** Return the open connection, and wait for it if there is none. */
  ready(): Promise<Connection> {
    if (this.#over !== null) return Promise.reject(this.#over);
    if (this.#connection !== null) return Promise.resolve(this.#connection);
    return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
  }

  /** Close the connection, and come back no more. */
  close(): void {
    this.#fail(new ConnectionLost("closed on this side"));
  }

  async #connect(): Promise<void> {
    let failures = 0;
    let moves = 0;
    let next: Place | null = null;
    while (this.#over === null) {
      const places = this.#places();
      const place: Place = next ?? places[failures % places.length]!;
      next = null;
      try {
        this.#opened(await this.#open(place));
        return;
      } catch (error) {
        if (error instanceof Redirected && ++moves <= MOVES_MAX) {
          next = parsePlace(error.place);
          continue;
        }
        if (this.#isFinal(error)) return this.#fail(error as JackalopeError);
        moves = 0;
        failures++;
        await this.#wait(failures, places.length, error);
      }
    }
  }

  async #open(place: Place): Promise<Connection> {
    const { token = this.#parsed.token, namespace = "default", name = "", tls } = this.#reach;
    const reach = { token, namespace, name, ...(tls && { tls }) };
    let opened: Connection | null = null;
    opened = await Connection.open(place, reach, this.#parsed.isTls, {
      heard: (kind, fields) => opened && this.#user.heard(kind, fields, opened),
      lost: (why) => this.#lost(why),
    });
    return opened;
  }

  /** The addresses that were given, and the members of the cluster that they belong to. */
  #places(): Place[] {
    const all = [...this.#parsed.places, ...this.#members];
    return [...new Map(all.map((place) => [`${place.host}:${place.port}`, place])).values()];
  }

  #isFinal(error: unknown): boolean {
    if (error instanceof Refused) return FINAL.has(error.code);
    // A certificate that was trusted once may be exchanged for a good one.
    return (error instanceof ProtocolError && !this.#wasOpen) || !(error instanceof JackalopeError);
  }

  async #wait(failures: number, places: number, error: unknown): Promise<void> {
    if (failures % places !== 0) return; // The next address at once.
    const last = places > 1 ? BACKOFF_MS.severalLast : BACKOFF_MS.last;
    const ms = Math.min(BACKOFF_MS.first * 2 ** (failures / places - 1), last);
    const asked = error instanceof Refused ? error.retryAfterMs : 0;
    await pause(Math.max(asked, ms * (0.5 + Math.random() / 2)), undefined, { signal: this.#stop.signal }).catch(() => {});
  }

  #opened(connection: Connection): void {
    if (this.#over !== null) return connection.close();
    if (!connection.isOpen) return void this.#connect();
    this.#connection = connection;
    this.#wasOpen = true;
    this.#members = connection.welcome.members.map(parsePlace);
    this.#user.opened(connection);
    for (const waiting of this.#waiting.splice(0)) waiting.resolve(connection);
  }

  #lost(why: JackalopeError): void {
    if (this.#connection === null) return; // Before anybody had it: `#opened` tries again.
    this.#connection = null;
    this.#user.lost();
    if (this.#isFinal(why)) this.#fail(why);
    else void this.#connect();
  }

  #fail(why: JackalopeError): void {
    if (this.#over !== null) return;
    this.#over = why;
    this.#stop.abort();
    this.#connection?.close();
    this.#connection = null;
    for (const waiting of this.#waiting.splice(0)) waiting.reject(why);
    this.#user.ended(why);
  }
}
