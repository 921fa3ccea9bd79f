//! Parquet, read by DuckDB and Polars.

use super::*;

#[test]
#[ignore = "needs GILK_PYTHON, a python with duckdb and polars; cargo xtask test makes one"]
fn duckdb_and_polars_read_parquet() {
    let dir = tempfile::TempDir::new().unwrap();
    let (path, all) = exported(dir.path(), Format::Parquet);
    let printed = python(
        r#"
import duckdb, polars, pyarrow.parquet as pq, sys, json
path = sys.argv[1]
for row in duckdb.sql(f"select kind, instrument, count(*), sum(value)::hugeint, min(time), max(time), min(ns) from '{path}' group by all order by all").fetchall():
    print("duckdb", *row, sep="|")
frame = polars.read_parquet(path)
print("polars", frame.height, *[f"{n}:{t}" for n, t in frame.schema.items()])
print("sorted", frame["time"].is_sorted())
print("pointers", frame.filter(polars.col("value") > 2**63)["value"].head(3).to_list())
file = pq.ParquetFile(path)
print("groups", file.num_row_groups, json.loads(file.schema_arrow.metadata[b"gilk"])["kernel"])
"#,
        &[&path],
    );
    let lines: Vec<&str> = printed.lines().collect();
    for order in 0..4u8 {
        let of = || all.iter().filter(|(_, sample)| sample.id == id(order));
        let label = instrument(
            order,
            [
                Meaning::Event,
                Meaning::Value,
                Meaning::Duration,
                Meaning::Count,
            ][usize::from(order)],
            "",
        )
        .label;
        let sum: u128 = of().map(|(_, sample)| u128::from(sample.value)).sum();
        let (first, last) = (of().next().unwrap().1.tsc, of().next_back().unwrap().1.tsc);
        let wanted = format!(
            "duckdb|0|{label}|{}|{sum}|{first}|{last}|{}",
            of().count(),
            unix(first)
        );
        assert!(
            lines.contains(&wanted.as_str()),
            "{wanted}\nis not in\n{printed}"
        );
    }
    let loss = format!(
        "duckdb|1|lost: ring full|1|41|{0}|{0}|{1}",
        START + HZ / 2,
        unix(START + HZ / 2)
    );
    for wanted in [
        loss.as_str(),
        "polars 180002 utc:Datetime(time_unit='us', time_zone='UTC') ns:Int64 time:UInt64 cpu:UInt16 kind:UInt8 id:UInt64 value:UInt64 instrument:String",
        "sorted True",
        "groups 2 6.1.0-40-cloud-amd64",
    ] {
        assert!(lines.contains(&wanted), "{wanted}\nis not in\n{printed}");
    }
    let pointers = [9, 9, 9].map(|n| POINTER + n);
    assert!(
        printed.contains(&format!("pointers {pointers:?}")),
        "{printed}"
    );
}
