//! A folder of Parquet files, read by DuckDB, Polars and the queries of the README.

use super::*;

#[test]
#[ignore = "needs GILK_PYTHON, a python with duckdb; cargo xtask test makes one"]
fn the_queries_of_the_readme_run() {
    let dir = tempfile::TempDir::new().unwrap();
    let (recording, _) = record(&dir.path().join("recording.arrow"));
    for machine in ["web1", "web2"] {
        let path = dir.path().join(format!("{machine}.arrow"));
        std::fs::copy(recording.path(), &path).unwrap();
        let go_on = &mut |_| ControlFlow::Continue(());
        let fleet = dir.path().join("fleet");
        export_into(&Recording::open(&path).unwrap(), &fleet, go_on).unwrap();
    }
    let readme = include_str!("../../README.md");
    // The queries run in the folder that contains `fleet`.
    let queries: Vec<&str> = readme
        .split("```sql\n")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once("```")?.0))
        .collect();
    assert_eq!(queries.len(), 4);
    let queries = queries
        .join("\0")
        .replace("'fleet/", &format!("'{}/fleet/", dir.path().display()))
        // The test's durations belong to an instrument of another name.
        .replace("'elapsed%'", "'\"Duration%'");
    let file = dir.path().join("queries");
    std::fs::write(&file, queries.replace('\0', "\x01")).unwrap();
    let polars: Vec<&str> = readme
        .split("```python\nimport polars as pl\n")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once("```")?.0))
        .collect();
    assert_eq!(polars.len(), 1);
    let polars = polars[0]
        .replace("\"fleet\"", &format!("\"{}/fleet\"", dir.path().display()))
        .replace("\"elapsed\"", "'\"Duration'");
    let frames = dir.path().join("frames.py");
    std::fs::write(&frames, polars).unwrap();
    let printed = python(
        r#"
import duckdb, sys, polars as pl
for number, query in enumerate(open(sys.argv[1]).read().split("\x01")):
    for row in duckdb.sql(query).fetchall(): print(number, *row, sep="|")
print("types", duckdb.sql(f"select typeof(machine), typeof(day), typeof(utc), min(day), count(distinct day) from read_parquet('{sys.argv[3]}/fleet/**/*.parquet', hive_partitioning = true) group by all").fetchall())
exec(open(sys.argv[2]).read())
"#,
        &[&file, &frames, dir.path()],
    );
    for wanted in [
        "0|web1|\"Event\", pre kernel_clone block 3|45000|[1.0, 1.0]",
        "0|web2|\"Duration\", pre kernel_clone block 3|45000|[271000.0, 541000.0]",
        "2|web1|2|lost: ring full|41",
        "2|web2|2|lost: ring full|41",
    ] {
        assert!(
            printed.lines().any(|line| line == wanted),
            "{wanted}\nis not in\n{printed}"
        );
    }
    // The recording begins at 22:13:20 of that day.
    assert!(
        printed.contains("types [('VARCHAR', 'DATE', 'TIMESTAMP WITH TIME ZONE', datetime.date(2023, 11, 14), 1)]"),
        "{printed}"
    );
    // Polars gives the same answer to the same query.
    for machine in ["web1", "web2"] {
        let wanted =
            format!("polars|{machine}|\"Duration\", pre kernel_clone block 3|45000|271000.0");
        assert!(
            printed.lines().any(|line| line == wanted),
            "{wanted}\nis not in\n{printed}"
        );
    }
    // Every sample is in one of the seconds, on both machines.
    let mut sums = [0u64; 2];
    for line in printed.lines().filter(|line| line.starts_with("1|")) {
        let counts = line
            .split('|')
            .skip(2)
            .map(|count| count.parse::<u64>().unwrap());
        sums.iter_mut()
            .zip(counts)
            .for_each(|(sum, count)| *sum += count);
    }
    assert_eq!(sums, [180_000; 2], "{printed}");
    assert!(
        printed
            .lines()
            .filter(|line| line.starts_with("3|"))
            .count()
            >= 4,
        "{printed}"
    );
}
