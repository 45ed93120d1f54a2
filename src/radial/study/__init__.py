"""Studies: many runs from one plan, run anywhere, never lost, analysed honestly."""
