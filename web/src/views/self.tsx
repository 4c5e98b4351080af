import type { JSX } from 'preact'
import { ViewHead } from '../kit/parts'
export function Self(): JSX.Element {
  return <ViewHead title="Self" />
}
