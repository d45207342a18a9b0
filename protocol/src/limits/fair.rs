//! Which part of a limit a slot should have.

/// Of a limit, this part (a tenth) is split evenly: a slot without a backlog can begin at once.
const EVEN_PART: i64 = 10;

/// The fair rate of one of `slots` slots that has `mine` tasks due while the others have `others`. Over all slots that see
/// the same numbers the sum does not exceed the limit.
pub fn fair_rate(limit: i64, slots: u16, mine: i64, others: i64) -> i64 {
    let slots = i64::from(slots.max(1));
    let all = mine.saturating_add(others);
    if all <= 0 {
        return limit / slots;
    }
    let even = limit / EVEN_PART / slots;
    even + part(limit - even * slots, mine, all)
}

/// How many of `limit` deliveries in flight one slot should have, rounded up: small limits must be of use to somebody, and
/// the grants keep the sum.
pub fn fair_in_flight(limit: i64, slots: u16, mine: i64, others: i64) -> i64 {
    let slots = i64::from(slots.max(1));
    let all = mine.saturating_add(others);
    if all <= 0 {
        return limit / slots;
    }
    let whole = part(limit, mine, all);
    let rounded_up =
        i64::from(mine > 0 && i128::from(whole) * i128::from(all) < i128::from(limit) * i128::from(mine));
    whole + rounded_up
}

fn part(of: i64, mine: i64, all: i64) -> i64 {
    let part = i128::from(of) * i128::from(mine) / i128::from(all);
    i64::try_from(part).unwrap_or(of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_idle_limit_is_split_evenly_and_a_backlog_takes_nearly_all_of_it() {
        assert_eq!(fair_rate(800, 8, 0, 0), 100);
        assert_eq!(fair_rate(800, 8, 500, 0), 730, "nine tenths and its even part");
        assert_eq!(fair_rate(800, 8, 0, 500), 10, "enough to begin with");
        assert_eq!((fair_in_flight(3, 8, 5, 5), fair_in_flight(3, 8, 0, 5)), (2, 0));
        assert_eq!(fair_in_flight(1, 8, 1, 1_000), 1, "rounded up");
    }

    proptest! {
        #[test]
        fn fair_rates_add_up_to_at_most_the_limit(
            limit in 1i64..1_000_000_000_000, waiting in prop::collection::vec(0i64..1_000_000, 1..20)
        ) {
            let (slots, all) = (waiting.len() as u16, waiting.iter().sum::<i64>());
            let shares: Vec<i64> = waiting.iter().map(|mine| fair_rate(limit, slots, *mine, all - mine)).collect();
            let sum: i64 = shares.iter().sum();
            prop_assert!(sum <= limit);
            prop_assert!(sum >= limit - 2 * i64::from(slots) - EVEN_PART - 1, "little is left lying: {sum} of {limit}");
            for (share, mine) in shares.iter().zip(&waiting) {
                prop_assert!(*share >= limit / EVEN_PART / i64::from(slots), "a share of its own");
                prop_assert!(all == 0 || *share >= part(limit - limit / EVEN_PART, *mine, all));
            }
        }

        #[test]
        fn whoever_has_a_backlog_is_to_have_some_in_flight(
            limit in 1i64..100_000, waiting in prop::collection::vec(0i64..1_000_000, 1..20)
        ) {
            let (slots, all) = (waiting.len() as u16, waiting.iter().sum::<i64>());
            for mine in &waiting {
                let fair = fair_in_flight(limit, slots, *mine, all - mine);
                prop_assert!((0..=limit).contains(&fair) && (*mine == 0 || fair >= 1));
            }
        }
    }
}
