/** Rows of ages become rows of sizes. `sizes` bounds make one bucket more than there are bounds. */
export function transposed(byAge: number[][], sizes: number): number[][] {
  return Array.from({ length: sizes + 1 }, (_, size) => byAge.map((row) => row[size] ?? 0))
}
