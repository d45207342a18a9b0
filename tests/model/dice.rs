//! Where every choice of a run comes from: a seed, or the choices of an earlier run.
//!
//! Choices are kept step by step. A run is replayed from them, also with steps left out and choices made smaller, which is
//! how a failing run is shrunk: zero is always the harmless choice, and what is missing is zero.

/// The choices of one step, in order.
pub type Choices = Vec<u32>;

/// Source of choices.
#[derive(Clone, Debug)]
pub struct Dice {
    state: u64,
    script: Option<Vec<Choices>>,
    log: Vec<Choices>,
    step: usize,
    at: usize,
}

impl Dice {
    /// Choices from a seed, without end.
    pub fn seeded(seed: u64) -> Dice {
        Dice { state: seed, script: None, log: Vec::new(), step: 0, at: 0 }
    }

    /// Choices of an earlier run.
    pub fn replay(script: Vec<Choices>) -> Dice {
        Dice { state: 0, script: Some(script), log: Vec::new(), step: 0, at: 0 }
    }

    /// Begins the next step. False where a replay is over.
    pub fn next_step(&mut self) -> bool {
        if !self.log.is_empty() {
            self.step += 1;
        }
        self.at = 0;
        match &self.script {
            Some(script) if self.step >= script.len() => false,
            _ => {
                self.log.push(Vec::new());
                true
            }
        }
    }

    /// The choices made so far.
    pub fn into_log(self) -> Vec<Choices> {
        self.log
    }

    /// A number below `sides`.
    pub fn roll(&mut self, sides: u32) -> u32 {
        let sides = sides.max(1);
        let value = match &self.script {
            Some(script) => {
                script.get(self.step).and_then(|step| step.get(self.at)).map_or(0, |value| value % sides)
            }
            None => (self.random() % u64::from(sides)) as u32,
        };
        self.at += 1;
        if let Some(step) = self.log.last_mut() {
            step.push(value);
        }
        value
    }

    /// True `permille` times in a thousand, never by the smallest choice.
    pub fn chance(&mut self, permille: u32) -> bool {
        permille > 0 && self.roll(1_000) >= 1_000 - permille.min(999)
    }

    /// One of these; the first is the harmless one.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.roll(of.len() as u32) as usize]
    }

    /// The generator `SplitMix64`: small, and the same everywhere for ever.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
