// Light, dark, or as the system has it. Charts on canvas cannot use CSS variables by themselves, so they read
// colours by css() and draw again when `theme` changes.
import { computed, signal } from '@preact/signals'

export type Theme = 'light' | 'dark'
export type Choice = Theme | 'system'

const KEY = 'memoir.theme'

function stored(): Choice {
  try {
    const value = localStorage.getItem(KEY)
    return value === 'light' || value === 'dark' ? value : 'system'
  } catch {
    return 'system' // a browser that keeps nothing
  }
}

const dark = typeof matchMedia === 'function' ? matchMedia('(prefers-color-scheme: dark)') : null
const systemDark = signal(dark?.matches ?? false)
dark?.addEventListener('change', (event) => (systemDark.value = event.matches))

export const choice = signal<Choice>(typeof localStorage === 'undefined' ? 'system' : stored())
export const theme = computed<Theme>(() =>
  choice.value === 'system' ? (systemDark.value ? 'dark' : 'light') : choice.value,
)

export function choose(next: Choice): void {
  choice.value = next
  try {
    if (next === 'system') localStorage.removeItem(KEY)
    else localStorage.setItem(KEY, next)
  } catch {
    // kept for this page only
  }
}

/** The value of a CSS variable now: css('--series-1'). */
export function css(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim()
}

/** The n-th colour of a series, from 0 on; they repeat after eight. */
export function seriesColor(n: number): string {
  return css(`--series-${(n % 8) + 1}`)
}
