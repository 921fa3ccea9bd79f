//! One table: a row for what was measured, a column for each kernel.

use std::fmt;

/// Figures by row and column, each of every run.
#[derive(Debug, Default)]
pub(crate) struct Table {
    columns: Vec<String>,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    name: String,
    /// For each column the figures of its runs.
    cells: Vec<Vec<f64>>,
}

impl Table {
    /// Notes a figure of one run.
    pub(crate) fn add(&mut self, row: &str, column: &str, figure: f64) {
        let column = position(&mut self.columns, |known| known == column, || column.into());
        let new = || Row {
            name: row.to_owned(),
            cells: Vec::new(),
        };
        let row = position(&mut self.rows, |known| known.name == row, new);
        if let Some(row) = self.rows.get_mut(row) {
            row.cells
                .resize_with(row.cells.len().max(column + 1), Vec::new);
            if let Some(figures) = row.cells.get_mut(column) {
                figures.push(figure);
            }
        }
    }
}

/// Where it is in the list, behind all others if it was not there.
fn position<T>(list: &mut Vec<T>, is: impl FnMut(&T) -> bool, new: impl FnOnce() -> T) -> usize {
    match list.iter().position(is) {
        Some(known) => known,
        None => {
            list.push(new());
            list.len() - 1
        }
    }
}

impl fmt::Display for Table {
    /// As Markdown. Where runs differ, the least and the most.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| |")?;
        for column in &self.columns {
            write!(f, " {column} |")?;
        }
        write!(f, "\n|---|")?;
        for _ in &self.columns {
            write!(f, "---:|")?;
        }
        writeln!(f)?;
        for row in &self.rows {
            write!(f, "| {} |", row.name)?;
            for column in 0..self.columns.len() {
                match row.cells.get(column).map(Vec::as_slice) {
                    Some([]) | None => write!(f, " |")?,
                    Some(figures) => write!(f, " {} |", spread(figures))?,
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

fn spread(figures: &[f64]) -> String {
    let least = figures.iter().copied().fold(f64::INFINITY, f64::min);
    let most = figures.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let (least, most) = (short(least), short(most));
    if least == most {
        least
    } else {
        format!("{least} to {most}")
    }
}

/// Three digits at least, and no more behind the point than they need.
fn short(figure: f64) -> String {
    let digits = match figure.abs() {
        large if large >= 100.0 => 0,
        medium if medium >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{figure:.digits$}");
    match text.trim_end_matches('0').strip_suffix('.') {
        Some(whole) if digits > 0 => whole.to_owned(),
        _ => text,
    }
}
