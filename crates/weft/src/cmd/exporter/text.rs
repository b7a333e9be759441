//! Metrics as Prometheus reads them (text exposition format 0.0.4).

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

/// What Prometheus is told of the kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, until its process starts again or somebody clears it.
    Counter,
    /// Goes up and down.
    Gauge,
}

/// A metric.
#[derive(Debug)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// One sentence for people.
    pub help: &'static str,
}

/// All metrics of one answer, with their values.
#[derive(Default)]
pub struct Exposition(BTreeMap<&'static str, Family>);

struct Family {
    metric: &'static Metric,
    /// Values by their labels as they are written: one of each.
    samples: BTreeMap<String, String>,
}

impl Exposition {
    /// Adds a value; a later one with the same labels takes its place.
    pub fn set(&mut self, metric: &'static Metric, labels: &[(&str, &str)], value: impl Display) {
        let mut text = String::new();
        for (name, value) in labels {
            let sign = if text.is_empty() { '{' } else { ',' };
            // Writing to a string does not fail.
            let _ = write!(text, "{sign}{name}=\"{}\"", escaped(value));
        }
        if !text.is_empty() {
            text.push('}');
        }
        let family = Family { metric, samples: BTreeMap::new() };
        self.0.entry(metric.name).or_insert(family).samples.insert(text, value.to_string());
    }

    /// The text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for Family { metric, samples } in self.0.values() {
            let Metric { name, kind, help } = metric;
            let kind = match kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
            };
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
            for (labels, value) in samples {
                let _ = writeln!(text, "{name}{labels} {value}");
            }
        }
        text
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Metric = Metric { name: "a_total", kind: Kind::Counter, help: "Of a." };
    const B: Metric = Metric { name: "b", kind: Kind::Gauge, help: "Of b." };

    #[test]
    fn the_text_is_prometheus() {
        let mut all = Exposition::default();
        all.set(&B, &[], 1.5);
        all.set(&A, &[("job", "x \"y\"\\\n"), ("target", "t")], 7);
        all.set(&A, &[("job", "b")], 8);
        all.set(&A, &[("job", "b")], 9);
        let text = "# HELP a_total Of a.\n# TYPE a_total counter\na_total{job=\"b\"} 9\n\
                    a_total{job=\"x \\\"y\\\"\\\\\\n\",target=\"t\"} 7\n# HELP b Of b.\n# TYPE b gauge\nb 1.5\n";
        assert_eq!(all.text(), text);
    }
}
