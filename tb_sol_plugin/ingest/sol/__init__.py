"""SOL captures: lines to records, records to columns, columns to the tables of a Capture. `ingest.sol_capture` puts them together."""
