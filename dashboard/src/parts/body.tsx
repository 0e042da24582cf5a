// A payload or result, as far as it can be shown.

import { useEffect, useMemo, useState } from "preact/hooks";
import { downloadAddress, fetchBytes } from "../api";
import { dump, recognise, SHOWN_BYTES_MAX } from "../body";
import { useFetched } from "../hooks";
import { bytes as size } from "../words";
import { Card, Problem } from "./basic";

export function Body(props: { title: string; path: string; length: number; content: unknown; version: string }) {
  const { path, length } = props;
  const isWhole = length <= SHOWN_BYTES_MAX;
  const { data, failure } = useFetched((signal) => fetchBytes(path, SHOWN_BYTES_MAX, signal), [path, props.version], false);
  const shown = useMemo(() => (data ? recognise(data, props.content, isWhole) : null), [data, props.content]);
  const [isHex, setHex] = useState(false);
  const aside = (
    <>
      <span class="dim">{size(length)}{shown && !isHex ? ` · ${WORDS[shown.look]}` : ""}</span>
      {shown && shown.look !== "hex" && (
        <button type="button" class="small" aria-pressed={isHex} onClick={() => setHex(!isHex)}>Hex</button>
      )}
      <a class="button small" href={downloadAddress(path)} download={props.title.toLowerCase()}>Download</a>
    </>
  );
  return (
    <Card title={props.title} aside={aside}>
      <Problem failure={failure} />
      {data && shown && (isHex ? <pre class="body">{dump(data)}</pre> : shown.look === "image"
        ? <Picture data={data} media={shown.media ?? ""} label={props.title} />
        : <pre class="body" tabIndex={0}>{shown.text}</pre>)}
      {!isWhole && <p class="dim">The first {size(SHOWN_BYTES_MAX)} are shown; the download has all of it.</p>}
    </Card>
  );
}

const WORDS = { value: "MessagePack", json: "JSON", text: "text", image: "image", hex: "bytes" };

function Picture({ data, media, label }: { data: Uint8Array; media: string; label: string }) {
  const [url, setUrl] = useState("");
  useEffect(() => {
    const made = URL.createObjectURL(new Blob([data as BlobPart], { type: media }));
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [data]);
  return url ? <img class="picture" src={url} alt={label} /> : null;
}
