// The field for a filter: completes columns, waits until one stops typing, and shows a mistake at its place.
import type { JSX } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import type { Problem } from '../api/client'
import { accept, complete, type ColumnHelp, type Completion } from './filter'

interface FilterFieldProps {
  value: string
  onChange: (value: string) => void
  columns: readonly ColumnHelp[]
  problem: Problem | null
  placeholder: string
}

const PAUSE_MS = 350

export function FilterField({ value, onChange, columns, problem, placeholder }: FilterFieldProps): JSX.Element {
  const [text, setText] = useState(value)
  const [menu, setMenu] = useState<(Completion & { at: number }) | null>(null)
  const input = useRef<HTMLInputElement>(null)
  const timer = useRef<ReturnType<typeof setTimeout>>()
  // The address may change by itself: a link, the browser's back.
  const told = useRef(value)
  useEffect(() => {
    if (value !== told.current) setText((told.current = value))
  }, [value])
  useEffect(() => () => clearTimeout(timer.current), [])

  const tell = (next: string): void => {
    clearTimeout(timer.current)
    onChange((told.current = next.trim()))
  }
  const later = (next: string): void => {
    clearTimeout(timer.current)
    timer.current = setTimeout(() => tell(next), PAUSE_MS)
  }
  const now = (): void => {
    setMenu(null)
    tell(text)
  }
  const offer = (field: HTMLInputElement): void => {
    const found = complete(field.value, field.selectionStart ?? field.value.length, columns)
    setMenu(found && { ...found, at: -1 })
  }
  const take = (name: string): void => {
    if (!menu) return
    const next = accept(text, menu, name)
    setText(next.text)
    setMenu(null)
    later(next.text)
    requestAnimationFrame(() => {
      input.current?.focus()
      input.current?.setSelectionRange(next.caret, next.caret)
    })
  }
  const onKeyDown = (event: KeyboardEvent): void => {
    const chosen = menu && menu.options[menu.at]
    if (menu && (event.key === 'ArrowDown' || event.key === 'ArrowUp')) {
      const step = event.key === 'ArrowDown' ? 1 : -1
      const n = menu.options.length
      setMenu({ ...menu, at: (menu.at + step + n) % n })
    } else if (menu && event.key === 'Tab' && !event.shiftKey) {
      take((chosen ?? menu.options[0]!).name)
    } else if (event.key === 'Enter') {
      if (chosen) take(chosen.name)
      else now()
    } else if (event.key === 'Escape' && menu) {
      setMenu(null)
    } else {
      return
    }
    event.preventDefault()
    event.stopPropagation()
  }
  const wrong = problem != null && text.trim() === value
  return (
    <div class="filter grow">
      <input
        ref={input}
        data-filter
        class={`field mono${wrong ? ' wrong' : ''}`}
        type="text"
        role="combobox"
        aria-label="filter in the query language"
        aria-expanded={menu != null}
        aria-controls="filter-menu"
        aria-activedescendant={menu && menu.at >= 0 ? `filter-${menu.at}` : undefined}
        aria-invalid={wrong}
        aria-describedby={wrong ? 'filter-wrong' : undefined}
        autocomplete="off"
        spellcheck={false}
        autocapitalize="off"
        placeholder={placeholder}
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value)
          offer(event.currentTarget)
          later(event.currentTarget.value)
        }}
        onFocus={(event) => offer(event.currentTarget)}
        onBlur={() => setMenu(null)}
        onKeyDown={onKeyDown}
      />
      {text && (
        <button
          type="button"
          class="clear"
          aria-label="clear the filter"
          onClick={() => {
            setText('')
            tell('')
          }}
        >
          ×
        </button>
      )}
      {menu && (
        <ul class="menu" id="filter-menu" role="listbox">
          {menu.options.map((option, i) => (
            <li
              key={option.name}
              id={`filter-${i}`}
              role="option"
              aria-selected={i === menu.at}
              // Before the field loses the focus.
              onPointerDown={(event) => {
                event.preventDefault()
                take(option.name)
              }}
            >
              <span class="mono">{option.name}</span>
              <span class="clip">{option.help}</span>
            </li>
          ))}
        </ul>
      )}
      {wrong && !menu && <Wrong text={value} problem={problem} />}
    </div>
  )
}

function Wrong({ text, problem }: { text: string; problem: Problem }): JSX.Element {
  const here = problem.part === 'where' && problem.at != null
  const at = Math.min(problem.at ?? 0, text.length)
  const len = Math.max(1, problem.len ?? 1)
  return (
    <div class="filter-wrong" id="filter-wrong" role="alert">
      {here && (
        <div class="mono">
          {text.slice(0, at)}
          <mark>{text.slice(at, at + len) || ' '}</mark>
          {text.slice(at + len)}
        </div>
      )}
      <div>{problem.detail || problem.title}</div>
    </div>
  )
}
