//! Tables with a row per measurement and a column per kernel or mechanism.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The tables of an experiment, by title.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Tables(Vec<(String, Table)>);

/// Figures by row and column, each of every run.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct Table {
    columns: Vec<String>,
    rows: Vec<Row>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Row {
    name: String,
    /// For each column the figures of its runs.
    cells: Vec<Vec<f64>>,
}

impl Tables {
    /// Adds a figure of one run. The only table of an experiment has an empty title.
    pub(crate) fn add(&mut self, title: &str, row: &str, column: &str, figure: f64) {
        let new = || (title.to_owned(), Table::default());
        let at = position(&mut self.0, |(known, _)| known == title, new);
        if let Some((_, table)) = self.0.get_mut(at) {
            table.add(row, column, figure);
        }
    }

    /// Returns every figure of rows or columns with that name, in tables with these words in their
    /// titles.
    pub(crate) fn figures(&self, title: &str, name: &str) -> Vec<f64> {
        let tables = self.0.iter().filter(|(known, _)| known.contains(title));
        tables.flat_map(|(_, table)| table.figures(name)).collect()
    }
}

impl Table {
    /// Adds a figure of one run.
    fn add(&mut self, row: &str, column: &str, figure: f64) {
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

    fn figures(&self, name: &str) -> Vec<f64> {
        let column = self.columns.iter().position(|known| known == name);
        let matches = self.rows.iter().flat_map(|row| {
            let cells = row.cells.iter().enumerate();
            let named =
                cells.filter(move |&(number, _)| row.name == name || column == Some(number));
            named.flat_map(|(_, figures)| figures.iter().copied())
        });
        matches.collect()
    }
}

/// Returns the position of an element in a list, to which a new one is appended if it is missing.
fn position<T>(list: &mut Vec<T>, is: impl FnMut(&T) -> bool, new: impl FnOnce() -> T) -> usize {
    match list.iter().position(is) {
        Some(known) => known,
        None => {
            list.push(new());
            list.len() - 1
        }
    }
}

impl fmt::Display for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (title, table)) in self.0.iter().enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            if !title.is_empty() {
                writeln!(f, "### {title}\n")?;
            }
            write!(f, "{table}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Table {
    /// Formats the table as Markdown. If runs differ, it has the least and the greatest figure.
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

/// Formats a figure with at least three digits, and only the needed ones after the point.
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
