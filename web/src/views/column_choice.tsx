// Which columns of a table are shown: a dialog, the choice in the address.
import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import type { TableColumn } from '../api/types'
import { setWords } from '../base/route'
import { Dialog } from '../kit/dialog'
import { Icon } from '../kit/icon'
import { titleOf } from './query_columns'

interface ColumnChoiceProps {
  all: readonly TableColumn[]
  shown: readonly string[]
  usual: readonly string[]
}

/** A question may name 48 columns; some go along unseen. */
const COLUMNS_MAX = 40

export function ColumnChoice({ all, shown, usual }: ColumnChoiceProps): JSX.Element {
  const [open, setOpen] = useState(false)
  const has = all.some((c) => c.name === 'growth')
  const names = [...(has ? [{ name: 'rate', help: 'by how much RSS grew or shrank, per second' }] : []), ...all]
  const change = (name: string, on: boolean): void => {
    // Its usual place where it has one, else the end.
    const next = on ? [...shown, name] : shown.filter((n) => n !== name)
    const order = (n: string): number => (usual.includes(n) ? usual.indexOf(n) : usual.length)
    next.sort((a, b) => order(a) - order(b))
    setWords({ cols: next.join() === usual.join() ? null : next.join(',') })
  }
  return (
    <>
      <button type="button" class="button" onClick={() => setOpen(true)}>
        <Icon name="columns" />
        Columns
      </button>
      <Dialog title="Columns" open={open} onClose={() => setOpen(false)}>
        <div class="checks">
          {names.map((column) => {
            const on = shown.includes(column.name)
            return (
              <label key={column.name} data-tip={column.help}>
                <input
                  type="checkbox"
                  checked={on}
                  disabled={(on && shown.length === 1) || (!on && shown.length >= COLUMNS_MAX)}
                  onChange={(event) => change(column.name, event.currentTarget.checked)}
                />
                {titleOf(column.name)}
              </label>
            )
          })}
        </div>
        <p class="dialog-foot">
          <button type="button" class="button" onClick={() => setWords({ cols: null })}>
            The usual ones
          </button>
        </p>
      </Dialog>
    </>
  )
}
