// A form of settings: each field with its name and help, and what has been changed.

import { useState } from "preact/hooks";
import { changesOf, parseValue, type Field as SettingField, type Section } from "../policy";
import type { PolicyValue } from "../types";
import { Dialog, Field } from "./basic";

type Settings = Record<string, PolicyValue>;

/** Change settings, or make something with them, which then is asked its name. */
export function SettingsEditor(props: {
  title: string;
  sections: Section[];
  settings: Settings;
  isNew?: boolean;
  onSave: (changes: Settings, name: string) => Promise<boolean>;
  onClose: () => void;
}) {
  // The settings as they were when the editor opened: news must not change what somebody types.
  const [before] = useState(props.settings);
  const [after, setAfter] = useState(props.settings);
  const [name, setName] = useState("");
  const changes = changesOf(before, after);
  const number = Object.keys(changes).length;
  const save = async (event: SubmitEvent) => {
    event.preventDefault();
    if (await props.onSave(changes, name.trim())) props.onClose();
  };
  const set = (field: string, text: string) => setAfter({ ...after, [field]: parseValue(text, before[field] as PolicyValue) });
  const saved = number ? `Save ${number} ${number === 1 ? "change" : "changes"}` : "Nothing changed";
  return (
    <Dialog title={props.title} onClose={props.onClose}>
      <form onSubmit={save}>
        {props.isNew && (
          <fieldset><Field label="Name">{(tied) => <input {...tied} required maxLength={255} value={name} onInput={(event) => setName(event.currentTarget.value)} />}</Field></fieldset>
        )}
        {props.sections.map((section) => (
          <fieldset key={section.title}>
            <legend>{section.title}</legend>
            <div class="form-grid">
              {section.fields.map((field) => (
                <Field key={field.name} label={field.label} help={field.help} class={field.name in changes ? "changed" : ""}>
                  {(tied) => <Input tied={tied} field={field} value={after[field.name] as PolicyValue} onChange={(text) => set(field.name, text)} />}
                </Field>
              ))}
            </div>
          </fieldset>
        ))}
        <div class="row end sticky">
          <button type="button" onClick={props.onClose}>Cancel</button>
          <button type="submit" class="primary" disabled={!number && !props.isNew}>{props.isNew ? "Create" : saved}</button>
        </div>
      </form>
    </Dialog>
  );
}

function Input({ tied, field, value, onChange }: { tied: object; field: SettingField; value: PolicyValue; onChange: (text: string) => void }) {
  const choices = typeof value === "boolean" ? ["true", "false"] : field.choices;
  if (choices) {
    const all = choices.includes(String(value)) ? choices : [String(value), ...choices];
    return (
      <select {...tied} value={String(value)} onChange={(event) => onChange(event.currentTarget.value)}>
        {all.map((each) => <option key={each} value={each}>{typeof value === "boolean" ? (each === "true" ? "yes" : "no") : each}</option>)}
      </select>
    );
  }
  return <input {...tied} value={String(value)} onInput={(event) => onChange(event.currentTarget.value)} />;
}
