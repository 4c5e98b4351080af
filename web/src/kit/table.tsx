// A table of any length: only the rows in sight are in the document. The header stays, the first column may stay
// (`pin`), the selected row is kept by its key when the order changes, and everything works by keyboard.
//
// All rows have one height, so which of them are in sight is a division. @tanstack/virtual-core does that for heights
// that vary, at 10 kB of the page's 80.
import type { ComponentChildren, JSX } from 'preact'
import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import { ABSENT, cell, type Kind } from '../base/format'
import { useKeys } from '../base/keys'
import { nextSort, parseSort, sortRows, sortText } from './order'

export interface TableColumn<R> {
  id: string
  title: string
  help?: string | undefined
  kind: Kind
  /** In px; a column with `grow` takes the room that is left, at least this. */
  width: number
  grow?: boolean
  /** Stays at the left edge; only the first column may. */
  pin?: boolean
  /** What it sorts by, and what is shown unless text() or render() say otherwise. */
  value: (row: R) => unknown
  text?: (row: R) => string
  render?: (row: R) => ComponentChildren
  align?: 'left' | 'right'
  sortable?: boolean
}

export interface TableProps<R> {
  /** For screen readers: what the rows are. */
  label: string
  columns: TableColumn<R>[]
  rows: readonly R[]
  rowKey: (row: R) => string | number
  sort?: string
  /** Without it the rows stay in the order they come. */
  onSort?: (sort: string) => void
  /** The rows are in that order already: a tree sorts its branches by itself. */
  sorted?: boolean
  /** Where a row leads: its first cell becomes a link, and a click anywhere in it goes there. */
  href?: (row: R) => string | null
  onOpen?: (row: R) => void
  selected?: string | number | null
  onSelect?: (key: string | number) => void
  rowClass?: (row: R) => string
  /** What to show instead of rows when there are none. */
  empty?: ComponentChildren
  /** Fill the column it stands in; otherwise as high as its rows, at most `height` px. */
  fill?: boolean
  height?: number
  bare?: boolean
  /** j, k and Enter on the whole page move in this table. */
  pageKeys?: boolean
}

const HEAD = 30
const narrow = typeof matchMedia === 'function' ? matchMedia('(max-width: 640px)') : null
/** A phone: one column stays, and the next must be the one that matters. */
export const isNarrow = (): boolean => narrow?.matches ?? false
const rowHeight = (): number => (narrow?.matches ? 36 : 28)

export const rightAligned = (kind: Kind): boolean => kind !== 'text' && kind !== 'yes' && kind !== 'time'

export function Table<R>(props: TableProps<R>): JSX.Element {
  const box = useRef<HTMLDivElement>(null)
  const sort = parseSort(props.sort ?? '')
  const by = sort ? props.columns.find((c) => c.id === sort.id) : undefined
  const rows = useMemo(
    () => (by && sort && props.onSort && !props.sorted ? sortRows(props.rows, by.value, sort.down) : props.rows),
    [props.rows, by?.id, sort?.down, props.onSort != null],
  )
  const [first, end] = useSight(box, rows.length)
  const total = rows.length * rowHeight()
  // On a phone what stays at the edge must leave room for the rest.
  const template = props.columns
    .map((c) => (c.pin && narrow?.matches ? '42vw' : c.grow ? `minmax(${c.width}px, 1fr)` : `${c.width}px`))
    .join(' ')
  const at = props.selected == null ? -1 : rows.findIndex((row) => props.rowKey(row) === props.selected)

  const move = (to: number): void => {
    const row = rows[Math.max(0, Math.min(rows.length - 1, to))]
    if (!row || !props.onSelect) return
    props.onSelect(props.rowKey(row))
    reveal(box.current, rows.indexOf(row))
  }
  const open = (row: R | undefined): void => {
    if (!row) return
    const to = props.href?.(row)
    if (props.onOpen) props.onOpen(row)
    else if (to) location.hash = to
  }
  const page = Math.max(1, Math.floor((box.current?.clientHeight ?? 300) / rowHeight()) - 2)
  const moves: Record<string, () => void> = {
    ArrowDown: () => move(at + 1),
    ArrowUp: () => move(at < 0 ? 0 : at - 1),
    PageDown: () => move(at + page),
    PageUp: () => move(at - page),
    Home: () => move(0),
    End: () => move(rows.length - 1),
    Enter: () => open(rows[at]),
  }
  useKeys(
    props.pageKeys
      ? [
          { keys: 'j', help: 'next row', group: 'Table', run: () => move(at + 1) },
          { keys: 'k', help: 'previous row', group: 'Table', run: () => move(at < 0 ? 0 : at - 1) },
          { keys: 'Enter', help: 'open the row', group: 'Table', run: () => open(rows[at]) },
        ]
      : [],
  )
  const onKeyDown = (event: KeyboardEvent): void => {
    const run = moves[event.key]
    // A link or a button in the table has keys of its own.
    if (!run || event.target !== box.current || event.ctrlKey || event.metaKey || event.altKey) return
    event.preventDefault()
    run()
  }
  const style = { '--cols': template } as JSX.CSSProperties
  const size = props.fill ? {} : { height: Math.min(props.height ?? 320, total + HEAD + 2) }
  return (
    <div
      ref={box}
      class={`table${props.fill ? ' fill' : ''}${props.bare ? ' bare' : ''}`}
      role="table"
      aria-label={props.label}
      aria-rowcount={rows.length + 1}
      tabIndex={0}
      onKeyDown={onKeyDown}
      style={rows.length ? { ...style, ...size } : style}
    >
      <div class="inner">
        <div class="tr head" role="row" aria-rowindex={1}>
          {props.columns.map((column) => (
            <Head key={column.id} column={column} sort={props.sort} onSort={props.onSort} />
          ))}
        </div>
        {rows.length === 0 ? (
          <div class="gone" role="row">
            <div role="cell">{props.empty ?? <span class="muted">Nothing here.</span>}</div>
          </div>
        ) : (
          <div class="body" role="rowgroup" style={{ height: total }}>
            {rows.slice(first, end).map((row, i) => (
              <Row
                key={props.rowKey(row)}
                row={row}
                index={first + i}
                table={props}
                selected={first + i === at}
                onOpen={open}
              />
            ))}
          </div>
        )}
      </div>
    </div>
  )
}

interface HeadProps<R> {
  column: TableColumn<R>
  sort: string | undefined
  onSort: ((sort: string) => void) | undefined
}

function Head<R>({ column, sort, onSort }: HeadProps<R>): JSX.Element {
  const now = parseSort(sort ?? '')
  const mine = now?.id === column.id
  const numeric = column.kind !== 'text'
  const sortable = onSort && column.sortable !== false
  return (
    <div
      class={`th${alignRight(column) ? ' right' : ''}${column.pin ? ' pin' : ''}`}
      role="columnheader"
      aria-sort={mine && sortable ? (now.down ? 'descending' : 'ascending') : undefined}
      data-tip={column.help}
    >
      {sortable ? (
        <button type="button" onClick={() => onSort(sortText(nextSort(now, column.id, numeric)))}>
          {column.title}
          <span class="arrow" aria-hidden="true">
            {mine ? (now.down ? '▼' : '▲') : ''}
          </span>
        </button>
      ) : (
        column.title
      )}
    </div>
  )
}

function alignRight<R>(column: TableColumn<R>): boolean {
  return column.align ? column.align === 'right' : rightAligned(column.kind)
}

interface RowProps<R> {
  row: R
  index: number
  table: TableProps<R>
  selected: boolean
  onOpen: (row: R) => void
}

function Row<R>({ row, index, table, selected, onOpen }: RowProps<R>): JSX.Element {
  const key = table.rowKey(row)
  const href = table.href?.(row) ?? null
  const opens = href != null || table.onOpen != null
  const click = (event: MouseEvent): void => {
    // Somebody who marks text, or who clicks a link or a button, means that.
    if ((event.target as HTMLElement).closest('a,button') || getSelection()?.toString()) return
    table.onSelect?.(key)
    if (opens) onOpen(row)
  }
  return (
    <div
      class={`tr${opens ? ' open' : ''} ${table.rowClass?.(row) ?? ''}`}
      role="row"
      aria-rowindex={index + 2}
      aria-selected={selected ? true : undefined}
      onClick={click}
      style={{ transform: `translateY(${index * rowHeight()}px)` }}
    >
      {table.columns.map((column, i) => (
        <Cell key={column.id} row={row} column={column} href={i === 0 ? href : null} />
      ))}
    </div>
  )
}

function Cell<R>({ row, column, href }: { row: R; column: TableColumn<R>; href: string | null }): JSX.Element {
  const text = column.text ? column.text(row) : column.render ? '' : cell(column.value(row), column.kind)
  const inside = column.render ? column.render(row) : text
  const none = !column.render && (text === ABSENT || text === '0 B')
  const wide = !column.render && column.kind === 'text' && text.length > column.width / 8
  return (
    <div
      class={`td${alignRight(column) ? ' right' : ''}${column.pin ? ' pin' : ''}${none ? ' none' : ''}`}
      role="cell"
      data-tip={wide ? text : undefined}
    >
      {href ? <a href={href}>{inside}</a> : column.pin ? <span>{inside}</span> : inside}
    </div>
  )
}

/** Scroll so that a row is in sight, below the header. */
function reveal(box: HTMLDivElement | null, index: number): void {
  if (!box) return
  const height = rowHeight()
  const top = index * height
  if (top < box.scrollTop) box.scrollTop = top
  else if (top + height + HEAD > box.scrollTop + box.clientHeight)
    box.scrollTop = top + height + HEAD - box.clientHeight
}

/** Rows beyond the edges that are drawn in advance, so that a quick scroll shows no gap. */
const OVERSCAN = 8
/** Until the element was measured: enough for a first paint. */
const HEIGHT_FIRST = 900

/** Which rows are in sight, from the first to before the last. */
export function sight(scrollTop: number, height: number, row: number, count: number): [number, number] {
  // Steps of a few rows: a scroll by some pixels changes nothing.
  const first = Math.max(0, Math.floor(scrollTop / row / 4) * 4 - OVERSCAN)
  const end = Math.min(count, Math.ceil((scrollTop + height) / row / 4) * 4 + OVERSCAN)
  return [Math.min(first, Math.max(0, end - 1)), end]
}

function useSight(box: { current: HTMLDivElement | null }, count: number): [number, number] {
  const [view, setView] = useState({ top: 0, height: HEIGHT_FIRST, row: rowHeight() })
  useLayoutEffect(() => {
    const element = box.current
    if (!element) return
    const look = (): void =>
      setView((before) => {
        const now = { top: element.scrollTop, height: element.clientHeight || HEIGHT_FIRST, row: rowHeight() }
        const same =
          String(sight(before.top, before.height, before.row, count)) === String(sight(now.top, now.height, now.row, count))
        return same && before.row === now.row ? before : now
      })
    look()
    const resized = new ResizeObserver(look)
    resized.observe(element)
    element.addEventListener('scroll', look, { passive: true })
    return () => {
      resized.disconnect()
      element.removeEventListener('scroll', look)
    }
  }, [count])
  return sight(view.top, view.height, view.row, count)
}
