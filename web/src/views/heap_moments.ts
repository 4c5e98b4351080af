// Moments of a heap that the page keeps, to compare one with another: the first it saw, one a minute, and those that
// somebody asked to keep. Bounded, since each may be megabytes.
import type { FlameAnswer } from '../draw/tree'

export interface Moment {
  time: number // ms of Date.now()
  answer: FlameAnswer
  kept: boolean // by hand
}

export const MOMENTS_MAX = 12
const EVERY_MS = 60_000

/** With the answer of now among them, if it is time for it or `keep` asks; of those not kept by hand the oldest but the first give way. */
export function addMoment(moments: Moment[], answer: FlameAnswer, now: number, keep = false): Moment[] {
  const last = moments[moments.length - 1]
  if (!keep && last && now - last.time < EVERY_MS) return moments
  const all = [...moments, { time: now, answer, kept: keep }]
  while (all.length > MOMENTS_MAX) {
    const give = all.findIndex((moment, i) => i > 0 && !moment.kept)
    all.splice(give > 0 && give < all.length - 1 ? give : 1, 1)
  }
  return all
}

/** "3 min ago", for a choice that is read at a glance. */
export function momentName(moment: Moment, first: boolean, clock: string): string {
  return `${clock}${first ? ', first seen' : moment.kept ? ', kept' : ''}`
}
