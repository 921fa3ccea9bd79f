//! Lines of text, read by Python's own csv, pyarrow, Polars and DuckDB.

use super::*;

/// Summarizes samples: their number, distinct CPUs, and sums of times, values and identifiers.
fn summed(all: &[(u16, Sample)]) -> String {
    let sum = |of: fn(&Sample) -> u64| -> u128 {
        all.iter().map(|(_, sample)| u128::from(of(sample))).sum()
    };
    let (times, values) = (sum(|sample| sample.tsc), sum(|sample| sample.value));
    format!(
        "{} 3 {times} {values} {}",
        all.len(),
        sum(|sample| sample.id)
    )
}

/// Asserts that the output contains the expected line once for each reader.
fn agreed(printed: &str, readers: &[&str], wanted: &str) {
    let lines: Vec<&str> = printed.lines().collect();
    let wanted: Vec<String> = readers
        .iter()
        .map(|name| format!("{name} {wanted}"))
        .collect();
    assert_eq!(lines, wanted);
}

#[test]
#[ignore = "needs GILK_PYTHON, a python with duckdb, polars and pyarrow; cargo xtask test makes one"]
fn four_readers_of_csv_agree() {
    let dir = tempfile::TempDir::new().unwrap();
    let (path, all) = exported(dir.path(), Format::Csv);
    let printed = python(
        r#"
import csv, sys, duckdb, polars, pyarrow as pa, pyarrow.compute as pc, pyarrow.csv
path, words = sys.argv[1], "pre kernel_clone block 3"
rows = list(csv.DictReader(open(path, newline="")))
assert all(row["instrument"].endswith(words) and row["instrument"][0] == '"' for row in rows)
assert rows[0]["seconds"] == "0.000000000" and float(rows[-1]["seconds"]) > 0.9
print("csv", len(rows), len({row["cpu"] for row in rows}), *[sum(int(row[of]) for row in rows) for of in ("tsc", "value", "id")])
types = pa.csv.ConvertOptions(column_types={"value": pa.uint64()})
table = pa.csv.read_csv(path, convert_options=types)
assert all(table["instrument"].to_pylist()[n].endswith(words) for n in range(10))
print("pyarrow", table.num_rows, pc.count_distinct(table["cpu"]).as_py(), *[sum(table[of].to_pylist()) for of in ("tsc", "value", "id")])
frame = polars.read_csv(path, schema_overrides={"value": polars.UInt64})
assert frame["instrument"].str.ends_with(words).all() and frame["tsc"].is_sorted()
print("polars", frame.height, frame["cpu"].n_unique(), *[frame[of].cast(polars.Int128).sum() for of in ("tsc", "value", "id")])
print("duckdb", *duckdb.sql(f"select count(*), count(distinct cpu), sum(tsc)::hugeint, sum(value)::hugeint, sum(id)::hugeint from read_csv('{path}', types={{'value': 'UBIGINT'}}) where instrument like '%{words}'").fetchall()[0])
"#,
        &[&path],
    );
    agreed(
        &printed,
        &["csv", "pyarrow", "polars", "duckdb"],
        &summed(&all),
    );
}

#[test]
#[ignore = "needs GILK_PYTHON, a python with duckdb; cargo xtask test makes one"]
fn readers_of_json_lines_agree() {
    let dir = tempfile::TempDir::new().unwrap();
    let (path, all) = exported(dir.path(), Format::JsonLines);
    let printed = python(
        r#"
import json, sys, duckdb
def number(text): return int(str(text), 0)
about, *rows = map(json.loads, open(sys.argv[1]))
assert about["gilk"]["kernel"] == "6.1.0-40-cloud-amd64" and len(about["gilk"]["instruments"]) == 4
print("json", len(rows), len({row["cpu"] for row in rows}), *[sum(number(row[of]) for row in rows) for of in ("tsc", "value", "id")])
found = duckdb.sql(f"select cpu, tsc, value, id from read_json('{sys.argv[1]}', format='newline_delimited', columns={{cpu: 'USMALLINT', tsc: 'UBIGINT', value: 'VARCHAR', id: 'UBIGINT'}}) where cpu is not null").fetchall()
print("duckdb", len(found), len({row[0] for row in found}), *[sum(number(row[of]) for row in found) for of in (1, 2, 3)])
"#,
        &[&path],
    );
    agreed(&printed, &["json", "duckdb"], &summed(&all));
}

#[test]
#[ignore = "needs GILK_PYTHON, any python; cargo xtask test makes one"]
fn a_reader_written_from_the_report_reads_the_plain_file() {
    let dir = tempfile::TempDir::new().unwrap();
    let (path, all) = exported(dir.path(), Format::Report);
    let printed = python(
        r#"
import sys
majors, _, samples = open(sys.argv[1]).read().partition("\n\n")
symbols = dict(line.split() for line in majors.splitlines())
rows = [line.split() for line in samples.splitlines()]
def packed(name):
    major, kind, block, order = name.split(".")
    assert symbols[major] == "kernel_clone"
    return int(major) << 28 | ["pre", "post"].index(kind) << 26 | int(block) << 8 | int(order)
print("report", len(rows), 3, sum(int(row[2]) for row in rows), sum(int(row[1]) for row in rows), sum(packed(row[0]) for row in rows))
"#,
        &[&path],
    );
    agreed(&printed, &["report"], &summed(&all));
}
