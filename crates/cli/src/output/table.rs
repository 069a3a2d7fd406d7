//! Aligned columns. On a terminal the widest column gives way, so that a row stays one line; in a
//! pipe nothing is cut.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The space between two columns.
const GAP: usize = 2;
/// No column is cut below this.
const MIN_COLUMN: usize = 8;

pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new<'a>(headers: impl Iterator<Item = &'a str>) -> Self {
        Self { rows: vec![headers.map(str::to_uppercase).collect()] }
    }

    pub(super) fn row(&mut self, cells: impl Iterator<Item = String>) {
        self.rows.push(cells.collect());
    }

    pub(super) fn render(&self, terminal: Option<usize>) -> String {
        let columns = self.rows.first().map_or(0, Vec::len);
        let mut widths: Vec<usize> = (0..columns)
            .map(|i| self.rows.iter().filter_map(|row| row.get(i)).map(|c| c.width()).max())
            .map(Option::unwrap_or_default)
            .collect();
        if let Some(terminal) = terminal {
            shrink(&mut widths, terminal);
        }
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                let cell = cut(cell, *width);
                line.push_str(&cell);
                line.extend(std::iter::repeat_n(' ', width - cell.width().min(*width) + GAP));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Takes width from the widest column until the row fits, or nothing more can be taken.
fn shrink(widths: &mut [usize], terminal: usize) {
    loop {
        let total = widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
        let Some(over) = total.checked_sub(terminal).filter(|over| *over > 0) else { return };
        let Some(widest) = widths.iter_mut().max() else { return };
        if *widest <= MIN_COLUMN {
            return;
        }
        *widest = widest.saturating_sub(over).max(MIN_COLUMN).max(*widest / 2);
    }
}

fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut shown = String::new();
    let mut used = 1;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used > width {
            break;
        }
        shown.push(c);
    }
    shown.push('…');
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[[&str; 3]]) -> Table {
        let mut table = Table::new(["name", "zone", "description"].into_iter());
        for row in rows {
            table.row(row.iter().map(|cell| (*cell).to_owned()));
        }
        table
    }

    #[test]
    fn columns_line_up() {
        let table = table(&[["acme", "ae", "first"], ["a-longer-name", "sa", ""]]);
        let expected = "NAME           ZONE  DESCRIPTION\n\
                        acme           ae    first\n\
                        a-longer-name  sa\n";
        assert_eq!(table.render(None), expected);
    }

    #[test]
    fn wide_letters_count_as_they_are_shown() {
        let text = table(&[["日本", "ae", "x"]]).render(None);
        assert_eq!(text.lines().nth(1), Some("日本  ae    x"));
    }

    #[test]
    fn a_terminal_cuts_the_widest_column_and_a_pipe_cuts_nothing() {
        let long = "x".repeat(200);
        let table = table(&[["acme", "ae", &long]]);
        assert!(table.render(None).contains(&long));
        for width in [20, 40, 80] {
            let text = table.render(Some(width));
            assert!(text.lines().all(|line| line.width() <= width.max(24)), "{width}:\n{text}");
            assert!(text.contains('…'));
        }
    }
}
