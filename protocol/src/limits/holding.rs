//! What one slot may use of one limit.

use super::board::TopicView;
use schemas::control::TopicShare;
use schemas::journal::OwnerToken;

/// Parts of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Millionths of a delivery per second.
    pub rate: i64,
    /// Deliveries that wait for their consumer.
    pub in_flight: i64,
}

impl Amounts {
    fn least(self, other: Amounts) -> Amounts {
        Amounts { rate: self.rate.min(other.rate), in_flight: self.in_flight.min(other.in_flight) }
    }
}

/// What a slot wants to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Wanted in all.
    pub want: Amounts,
    /// In flight, as far as is known.
    pub in_flight: i64,
    /// Tasks due.
    pub waiting: i64,
    /// Which count is waited for.
    pub journal_wanted: i64,
    /// Epoch ms.
    pub at: i64,
}

/// What one owner of one slot has written of one topic.
#[derive(Clone, Copy, Debug, Default)]
pub struct Holding {
    last: Option<TopicShare>,
    /// Until `last` is read back: it may have given back what was granted before.
    most: Amounts,
}

impl Holding {
    /// What may be used, by what was read of the log.
    pub fn usable(&self, view: &TopicView, token: OwnerToken) -> Amounts {
        let (Some(own), Some(last)) = (&view.own, &self.last) else { return Amounts::default() };
        if own.said.token != token {
            return Amounts::default();
        }
        let granted = Amounts { rate: own.rate, in_flight: own.in_flight };
        if own.said == *last { granted } else { granted.least(self.most) }
    }

    /// Whether the last record written was read back.
    pub fn is_settled(&self, view: &TopicView) -> bool {
        view.own.is_some_and(|own| Some(own.said) == self.last)
    }

    /// The record that says so. From now on no more is used than that leaves.
    pub fn ask(&mut self, view: &TopicView, token: OwnerToken, wish: Wish) -> TopicShare {
        let held = self.usable(view, token).least(wish.want);
        let share = TopicShare {
            token,
            limit_offset: view.limit.map_or(-1, |limit| limit.offset),
            rate_held: held.rate,
            rate_want: wish.want.rate,
            in_flight_held: wish.in_flight,
            in_flight_want: wish.want.in_flight,
            waiting: wish.waiting,
            journal_wanted: wish.journal_wanted,
            at: wish.at,
        };
        self.most = held;
        self.last = Some(share);
        share
    }
}
