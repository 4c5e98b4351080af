// Keys of the whole page and of the view in front. A view registers its own with useKeys(); two-key sequences
// ("g o") wait a second for the second key. Nothing fires while somebody types into a field.
import { signal } from '@preact/signals'
import { useEffect, useRef } from 'preact/hooks'

export interface KeyBinding {
  /** "j", "g o", "Escape", "?" */
  keys: string
  help: string
  run: (event: KeyboardEvent) => void
  /** Where the overlay lists it. */
  group?: string
}

const SEQUENCE_MS = 1000

/** Later ones win: a view's over the page's. */
export const bindings = signal<KeyBinding[]>([])
let pending = ''
let pendingAt = 0

export function addKeys(list: KeyBinding[]): () => void {
  bindings.value = [...bindings.value, ...list]
  return () => {
    bindings.value = bindings.value.filter((b) => !list.includes(b))
  }
}

/** Keys while a component is there. `list` may be new in every render; the actions are those of the last one. */
export function useKeys(list: KeyBinding[]): void {
  const latest = useRef(list)
  latest.current = list
  useEffect(
    () => addKeys(list.map((b, i) => ({ ...b, run: (e: KeyboardEvent) => latest.current[i]?.run(e) }))),
    [list.map((b) => b.keys).join('|')],
  )
}

export function isTyping(target: EventTarget | null): boolean {
  const element = target as HTMLElement | null
  if (!element?.tagName) return false
  return /^(INPUT|TEXTAREA|SELECT)$/.test(element.tagName) || element.isContentEditable
}

/** Which binding a key press means, given the first key of a sequence; the new pending key otherwise. */
export function match(list: KeyBinding[], before: string, key: string): KeyBinding | string {
  const both = before ? `${before} ${key}` : key
  for (const wanted of before ? [both, key] : [key]) {
    for (let i = list.length - 1; i >= 0; i--) {
      const binding = list[i]
      if (binding && binding.keys === wanted) return binding
    }
  }
  return list.some((b) => b.keys.startsWith(key + ' ')) ? key : ''
}

function onKey(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return
  if (isTyping(event.target) && event.key !== 'Escape') return
  // Enter on a link or a button means that one.
  if (event.key === 'Enter' && (event.target as Element | null)?.closest?.('a, button, summary')) return
  // A dialog has keys of its own, and closes by itself.
  if (event.key === 'Shift' || document.querySelector('dialog[open]')) return
  const before = event.timeStamp - pendingAt < SEQUENCE_MS ? pending : ''
  const found = match(bindings.value, before, event.key)
  pending = typeof found === 'string' ? found : ''
  pendingAt = event.timeStamp
  if (typeof found !== 'string') {
    event.preventDefault()
    found.run(event)
  }
}

export function startKeys(): void {
  addEventListener('keydown', onKey)
}
