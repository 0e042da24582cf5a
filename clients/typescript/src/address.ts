// Addresses: where brokers are, and how to reach them.

/** How to reach a broker, or the members of a cluster. */
export interface Reach {
  /**
   * `jackalope://host:port`, or `jackalopes://` for TLS; several, separated by commas, for a
   * cluster. A token may stand before the host: `jackalope://token@host`.
   */
  address?: string;
  /** The token of an API key, where the broker needs one. */
  token?: string;
  namespace?: string;
  /** Who acts: shown in histories. */
  name?: string;
  tls?: {
    /** The certificate authorities to trust, in PEM form; those of Node by default. */
    ca?: string | Buffer;
    /** The name that the certificate must have; the host by default. */
    serverName?: string;
    /** Accept any certificate: for tests. */
    insecureSkipVerify?: boolean;
  };
}

export interface Place {
  readonly host: string;
  readonly port: number;
}

export interface Parsed {
  readonly places: readonly Place[];
  readonly isTls: boolean;
  readonly token: string;
}

export const PORT = 7420;
const DEFAULT = `jackalope://127.0.0.1:${PORT}`;

/** Parse `jackalope[s]://[token@]host[:port][,host[:port]...]`. */
export function parseAddress(text: string = process.env["JACKALOPE_BROKER"] ?? DEFAULT): Parsed {
  const [, scheme = "jackalope", token, hosts] = /^(?:(jackalopes?):\/\/)?(?:([^@/]*)@)?([^/]+)\/?$/.exec(text) ?? [];
  if (hosts === undefined)
    throw new TypeError(`${JSON.stringify(text)} is no address; write jackalope://host:port`);
  return {
    places: hosts.split(",").map(parsePlace),
    isTls: scheme === "jackalopes",
    token: decodeURIComponent(token ?? ""),
  };
}

/** Parse `host:port`, the host in brackets if it has colons. */
export function parsePlace(text: string): Place {
  const [, bracketed, plain, port] = /^\s*(?:\[([^\]]+)\]|([^:[\]\s]+))(?::(\d{1,5}))?\s*$/.exec(text) ?? [];
  const host = bracketed ?? plain;
  if (host === undefined || Number(port ?? PORT) > 65_535)
    throw new TypeError(`${JSON.stringify(text)} is no host and port; write host:port`);
  return { host, port: Number(port ?? PORT) };
}
