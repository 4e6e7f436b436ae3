// Analyses that the server could not load: their names, why, and what helps. Pure.

export interface Failure {
  name: string;
  reason: string;
}

/** What helps, whatever the reason: the error is that of a Python module of the server. */
export const REMEDY = "Install the Python package that the error names, reinstall `tb_sol_plugin`, or correct the module of the analysis; then restart the server. `tb-sol doctor` prints the same errors.";

/** The field `failed` of the catalog as a list, by name. */
export const failuresOf = (failed: Readonly<Record<string, string>> = {}): Failure[] =>
  Object.entries(failed).map(([name, reason]) => ({ name, reason })).sort((a, b) => (a.name < b.name ? -1 : 1));
