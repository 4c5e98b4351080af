// Rows of a tree, in the order of a table: each after its parent, siblings sorted, closed branches left out.
import { sortRows } from '../kit/order'

export interface TreeRow<R> {
  row: R
  path: string
  depth: number
  /** Has children, whether they are shown or not. */
  branch: boolean
}

export interface TreeShape<R> {
  path: (row: R) => string
  parent: (row: R) => string | null
  value: (row: R) => unknown
  down: boolean
  closed: ReadonlySet<string>
}

/** A row whose parent is not among the rows (a filter left it out) is a root. */
export function flatten<R>(rows: readonly R[], shape: TreeShape<R>): TreeRow<R>[] {
  const known = new Set(rows.map(shape.path))
  const children = new Map<string, R[]>()
  const roots: R[] = []
  for (const row of rows) {
    const parent = shape.parent(row)
    if (parent == null || parent === shape.path(row) || !known.has(parent)) roots.push(row)
    else children.set(parent, [...(children.get(parent) ?? []), row])
  }
  const out: TreeRow<R>[] = []
  const walk = (list: R[], depth: number): void => {
    for (const row of sortRows(list, shape.value, shape.down)) {
      const path = shape.path(row)
      const below = children.get(path)
      out.push({ row, path, depth, branch: below != null })
      if (below && !shape.closed.has(path)) walk(below, depth + 1)
    }
  }
  walk(roots, 0)
  return out
}
