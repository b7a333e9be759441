//! Columns for people.

/// Lines of `rows` below `titles`, each column as wide as its widest cell.
pub fn render(titles: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = titles.iter().map(|title| title.len()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let titles: Vec<String> = titles.iter().map(ToString::to_string).collect();
    let mut text = String::new();
    for row in std::iter::once(&titles).chain(rows) {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn columns_line_up() {
        let rows =
            vec![vec!["a".into(), "long".into(), "x".into()], vec!["bbb".into(), "s".into(), String::new()]];
        assert_eq!(super::render(&["A", "B", "C"], &rows), "A    B     C\na    long  x\nbbb  s\n");
    }
}
