//! What happened, for people: written only when a failing run is replayed.

/// Lines of a run.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    lines: Option<Vec<String>>,
}

impl Trace {
    /// Keeps nothing.
    pub fn off() -> Trace {
        Trace { lines: None }
    }

    /// Keeps every line.
    pub fn on() -> Trace {
        Trace { lines: Some(Vec::new()) }
    }

    /// Adds a line.
    pub fn say(&mut self, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(line());
        }
    }

    /// All lines.
    pub fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}
