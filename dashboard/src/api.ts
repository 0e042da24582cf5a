// The API: how the page asks the broker. Every answer is JSON, or an error with a sentence.

import { type Query, toParameters } from "./route";
import { createStore } from "./store";
import type { Permission, Visitor } from "./types";

const NAMESPACE_KEPT = "jackalope.namespace";

/** Who looks at the page; null until the broker has said. */
export const visitor = createStore<Visitor | null>(null);
export const namespace = createStore<string>(localStorage.getItem(NAMESPACE_KEPT) ?? "default");

namespace.subscribe(() => localStorage.setItem(NAMESPACE_KEPT, namespace.get()));

/** How far an action reaches: single queues, a namespace with all its queues, or the whole broker. */
export type Reach = "queues" | "namespace" | "broker";

/** Whether the visitor's key permits something: what it does not permit is not offered. */
export function may(permission: Permission, reach: Reach = "queues"): boolean {
  const who = visitor.get();
  if (!who?.permissions.includes(permission)) return false;
  return reach === "queues" || (!who.queues.length && (reach === "namespace" || !who.namespace));
}

export class Failure extends Error {
  constructor(
    message: string,
    readonly status: number,
  ) {
    super(message);
  }
}

export interface Asking {
  method?: "GET" | "POST" | "PUT" | "DELETE";
  query?: Query;
  body?: unknown;
  raw?: Blob;
  signal?: AbortSignal;
}

export async function ask<T>(path: string, asking: Asking = {}): Promise<T> {
  const response = await send(path, asking);
  return (response.status === 204 ? null : await response.json()) as T;
}

/** The first bytes of a payload or result, and its whole size. */
export async function fetchBytes(path: string, atMost: number, signal: AbortSignal): Promise<Uint8Array> {
  const response = await send(path, { signal }, { Range: `bytes=0-${atMost - 1}` });
  return new Uint8Array(await response.arrayBuffer());
}

async function send(path: string, asking: Asking, more: Record<string, string> = {}): Promise<Response> {
  const headers: Record<string, string> = {
    "X-Jackalope-Client": "dashboard",
    "X-Jackalope-Names": "jackalope",
    "X-Jackalope-Namespace": namespace.get(),
    ...more,
  };
  const request: RequestInit = { method: asking.method ?? "GET", headers, credentials: "same-origin" };
  if (asking.signal) request.signal = asking.signal;
  if (asking.raw) {
    headers["Content-Type"] = "application/octet-stream";
    request.body = asking.raw;
  } else if (asking.body !== undefined) {
    headers["Content-Type"] = "application/json";
    request.body = JSON.stringify(asking.body);
  }
  const response = await fetch(address(path, asking.query), request).catch((error: unknown) => {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Failure("The broker does not answer.", 0);
  });
  if (response.ok || response.status === 304) return response;
  if (response.status === 416) return new Response(new Uint8Array());
  if (response.status === 401 && path !== "session") void refreshVisitor();
  const body = (await response.json().catch(() => null)) as { error?: string } | null;
  throw new Failure(body?.error ?? `The broker answered ${response.status}.`, response.status);
}

/** The address of a call, below whatever path the page itself is served. */
export function address(path: string, query: Query = {}): string {
  const parameters = toParameters(query).toString();
  const url = new URL(`api/v1/${path}`, location.href.split("#")[0]);
  url.search = parameters;
  return url.href;
}

export function socketAddress(path: string, query: Query = {}): string {
  return address(path, { ...query, namespace: namespace.get() }).replace(/^http/, "ws");
}

/** A link that the browser follows by itself: it cannot name the namespace in a header. */
export function downloadAddress(path: string): string {
  return address(path, { namespace: namespace.get() });
}

export async function refreshVisitor(): Promise<void> {
  const found = await ask<Visitor>("session");
  const here = namespace.get();
  if (found.namespaces.length && !found.namespaces.includes(here)) namespace.set(found.namespaces[0] as string);
  visitor.set(found);
}

export async function signIn(token: string): Promise<void> {
  await ask<Visitor>("session", { method: "POST", body: { token } });
  await refreshVisitor();
}

export async function signOut(): Promise<void> {
  await ask("session", { method: "DELETE" });
  await refreshVisitor();
}
