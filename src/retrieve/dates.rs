//! Dates: what a question names, what a passage holds, and how near they are.
//!
//! Numbers, names of months and days, and relative words are read, in English. No time zone: dates are days, and which
//! day it is, the caller says.

use jiff::ToSpan as _;
use jiff::civil::{Date, Weekday};

/// How many days after the time that the question names a passage can be dated: what happened is told later.
const TOLD_WITHIN_DAYS: f64 = 31.0;
/// The nearness of a passage that is dated on the next day, where one dated within has 1. It falls to 0 in
/// [`TOLD_WITHIN_DAYS`].
const TOLD_LATER: f64 = 0.8;
/// A passage that names more dates is a list or a log, and its other dates are not read.
const DATES_MAX: usize = 64;

/// A time that a question names. Without a year it comes back each year.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Period {
    first: Date,
    last: Date,
    each_year: bool,
}

/// The times that the question names; relative words count from `today`, which is asked for only with one of them: to find
/// the zone of this machine takes a millisecond.
pub(crate) fn periods(question: &str, today: &dyn Fn() -> Date) -> Vec<Period> {
    let words = words(question);
    let mut periods = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let found = named(&words[at..])
            .and_then(|(named, length)| Some((named.period()?, length)))
            .or_else(|| month_alone(&words, at, today).map(|period| (period, 1)))
            .or_else(|| relative(&words[at..], today));
        if let Some((period, length)) = found {
            periods.extend(turned(period, &words[..at], today));
            at += length;
        } else {
            at += 1;
        }
    }
    periods
}

/// What the word before a time makes of it: "since May" is all from then on, "before 2024" all until then. "The week before
/// 3 May" is about that day.
fn turned(period: Period, before: &[&str], today: &dyn Fn() -> Date) -> Vec<Period> {
    let mut before =
        before.iter().rev().map(|word| word.to_ascii_lowercase()).skip_while(|word| word == "the");
    let word = before.next().unwrap_or_default();
    let is_unit =
        |word: String| matches!(word.trim_end_matches('s'), "day" | "week" | "weekend" | "month" | "year");
    let is_near = before.next().is_some_and(|word| weekday(&word).is_some() || is_unit(word));
    if is_near || !["since", "after", "before", "until"].contains(&&*word) {
        return vec![period];
    }
    let this = if period.each_year { period.in_year_of(today()) } else { Some(period) };
    let Some(this) = this else { return Vec::new() };
    match &*word {
        "since" => vec![this, Period::days(this.first, today().max(this.last))],
        "until" => vec![this, Period::days(Date::MIN, this.last)],
        "after" => {
            let next = this.last.tomorrow().ok().filter(|next| *next <= today());
            next.map(|next| Period::days(next, today())).into_iter().collect()
        }
        _ => this.first.yesterday().map(|last| Period::days(Date::MIN, last)).into_iter().collect(),
    }
}

/// The days that a passage names with their month and year. A month as a whole counts as its first day.
pub(crate) fn days(passage: &str) -> Vec<Date> {
    let words = words(passage);
    let mut days = Vec::new();
    let mut at = 0;
    while at < words.len() && days.len() < DATES_MAX {
        let Some((named, length)) = named(&words[at..]) else {
            at += 1;
            continue;
        };
        at += length;
        let day = named.year.zip(named.month);
        days.extend(day.and_then(|(year, month)| Date::new(year, month, named.day.unwrap_or(1)).ok()));
    }
    days
}

/// How near the nearest of these days is to one of the periods: 1 within, less shortly after, 0 before and long after. For a
/// year it is enough that the passage names it: a report says what a figure was "in 2009".
pub(crate) fn nearness(periods: &[Period], passage: &str, days: impl Iterator<Item = Date> + Clone) -> f64 {
    let mut years = periods.iter().filter_map(|period| period.whole_year());
    if years.any(|asked| words(passage).into_iter().any(|word| year(word) == Some(asked))) {
        return 1.0;
    }
    let of_pair = |period: &Period, day: Date| {
        let period = if period.each_year { period.in_year_of(day) } else { Some(*period) };
        let Some(Period { first, last, .. }) = period else { return 0.0 };
        // What happened before a time is not told about as of its end.
        if day < first || first == Date::MIN && last < day {
            return 0.0;
        }
        let late = f64::from(last.until(day).map_or(i32::MAX, |span| span.get_days())).max(0.0);
        if late <= 0.0 { 1.0 } else { (TOLD_LATER * (1.0 - late / TOLD_WITHIN_DAYS)).max(0.0) }
    };
    let pairs = periods.iter().flat_map(|period| days.clone().map(move |day| of_pair(period, day)));
    pairs.fold(0.0, f64::max)
}

impl Period {
    fn days(first: Date, last: Date) -> Self {
        Self { first, last, each_year: false }
    }

    /// The year that it is, from its first to its last day.
    fn whole_year(&self) -> Option<i16> {
        let is_year = !self.each_year
            && self.first == self.first.first_of_year()
            && self.last == self.first.last_of_year();
        is_year.then_some(self.first.year())
    }

    /// The latest one that begins by the day's own date.
    fn in_year_of(self, day: Date) -> Option<Self> {
        let move_to = |year| -> Option<Self> {
            let to = |date: Date| Date::new(year, date.month(), date.day()).ok();
            let first = to(self.first)?;
            // What is longer than a day ends with a month, and February not on the same day each year.
            let last =
                if self.first == self.last { first } else { to(self.last.first_of_month())?.last_of_month() };
            Some(Self::days(first, last))
        };
        move_to(day.year()).filter(|period| period.first <= day).or_else(|| move_to(day.year() - 1))
    }
}

/// The parts of a date that a text names.
#[derive(Clone, Copy, Default)]
struct Named {
    year: Option<i16>,
    month: Option<i8>,
    day: Option<i8>,
}

impl Named {
    fn period(self) -> Option<Period> {
        let Some(month) = self.month else {
            let year = self.year?;
            return Some(Period::days(Date::new(year, 1, 1).ok()?, Date::new(year, 12, 31).ok()?));
        };
        // 2024 has a 29 February.
        let year = self.year.unwrap_or(2024);
        let first = Date::new(year, month, self.day.unwrap_or(1)).ok()?;
        let last = if self.day.is_some() { first } else { first.last_of_month() };
        Some(Period { first, last, each_year: self.year.is_none() })
    }
}

fn words(text: &str) -> Vec<&str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).collect()
}

/// A date that these words begin with, and of how many words it is: `8 May 2023`, `May 8th, 2023`, `8th of May`,
/// `May 2023`, `2023-05-08`.
fn named(words: &[&str]) -> Option<(Named, usize)> {
    let word = |at: usize| words.get(at).copied().unwrap_or_default();
    if let Some(month) = month(word(0)) {
        if let Some(day) = day(word(1)) {
            let year = year(word(2));
            let named = Named { year, month: Some(month), day: Some(day) };
            return Some((named, 2 + usize::from(year.is_some())));
        }
        let year = year(word(1))?;
        return Some((Named { year: Some(year), month: Some(month), day: None }, 2));
    }
    if let Some(day) = day(word(0)) {
        let at = if word(1).eq_ignore_ascii_case("of") { 2 } else { 1 };
        let month = month(word(at))?;
        let year = year(word(at + 1));
        let named = Named { year, month: Some(month), day: Some(day) };
        return Some((named, at + 1 + usize::from(year.is_some())));
    }
    let year = year(word(0))?;
    let two_digits = |word: &str, max: i8| {
        let number = word.get(..2)?.parse().ok().filter(|number| (1..=max).contains(number))?;
        // `2023-05-08T10:00` is one word from the day on.
        (word.len() == 2 || word[2..].starts_with('T')).then_some(number)
    };
    let (month, day) = (two_digits(word(1), 12)?, two_digits(word(2), 31)?);
    Some((Named { year: Some(year), month: Some(month), day: Some(day) }, 3))
}

/// A month or a year without more: only after a word that goes with a time, since May is a verb and 2000 a number.
fn month_alone(words: &[&str], at: usize, today: &dyn Fn() -> Date) -> Option<Period> {
    const BEFORE: [&str; 14] = [
        "in", "during", "since", "of", "by", "until", "early", "mid", "late", "this", "last", "from",
        "after", "before",
    ];
    let before = words.get(at.checked_sub(1)?)?.to_ascii_lowercase();
    if !BEFORE.contains(&before.as_str()) {
        return None;
    }
    let is_relative = before == "last" || before == "this";
    let (is_turned, is_last) = (before == "after" || before == "before", at + 1 == words.len());
    // "This may be", "after 2000 uploads"; with no word behind it, "this may" is a month.
    let is_verb = (before == "this" || is_turned) && words[at] == "may" && !is_last;
    if is_verb || (is_relative || is_turned && !is_last) && year(words[at]).is_some() {
        return None;
    }
    let month = month(words[at]);
    let year = if month.is_none() { Some(year(words[at])?) } else { None };
    let period = Named { year, month, day: None }.period()?;
    // "Last May" is the last one that has begun.
    if is_relative { period.in_year_of(today()).or(Some(period)) } else { Some(period) }
}

/// `yesterday`, `last week`, `three days ago`, `on Tuesday`, and of how many words it is.
fn relative(words: &[&str], today: &dyn Fn() -> Date) -> Option<(Period, usize)> {
    let word = |at: usize| words.get(at).copied().unwrap_or_default().to_ascii_lowercase();
    let (first, second) = (word(0), word(1));
    let before = |days: i64| today().checked_sub(days.days()).ok();
    let monday = || before(i64::from(today().weekday().to_monday_zero_offset()));
    if first == "day" && second == "before" && word(2) == "yesterday" {
        return before(2).map(|day| (Period::days(day, day), 3));
    }
    if matches!(first.as_str(), "last" | "past" | "previous")
        && let Some(start) = count(&second).and_then(|number| days_ago(number, &word(2), today))
    {
        return Some((Period::days(start, today()), 3));
    }
    let period = match (first.as_str(), second.as_str()) {
        ("today", _) => return Some((Period::days(today(), today()), 1)),
        ("yesterday", _) => return before(1).map(|day| (Period::days(day, day), 1)),
        ("last" | "past" | "previous", "week") => {
            Period::days(monday()?.checked_sub(7.days()).ok()?, today())
        }
        ("this", "week") => Period::days(monday()?, today()),
        ("last" | "past" | "previous", "weekend") => {
            Period::days(monday()?.checked_sub(2.days()).ok()?, monday()?.checked_sub(1.days()).ok()?)
        }
        ("last" | "past" | "previous", "month") => {
            let last = today().first_of_month().yesterday().ok()?;
            Period::days(last.first_of_month(), last)
        }
        ("this", "month") => Period::days(today().first_of_month(), today()),
        ("last" | "past" | "previous", "year") => {
            let last = today().first_of_year().yesterday().ok()?;
            Period::days(last.first_of_year(), last)
        }
        ("this", "year") => Period::days(today().first_of_year(), today()),
        ("last" | "on" | "this" | "past", name) => {
            let name = weekday(name)?;
            let day = today().nth_weekday(-1, name).ok()?;
            Period::days(day, day)
        }
        (number, unit) => {
            if word(2) != "ago" {
                return None;
            }
            let date = days_ago(count(number)?, unit, today)?;
            let slack = match unit.trim_end_matches('s') {
                "week" => 3,
                "month" => 15,
                "year" => 183,
                _ => 0,
            };
            let days = Period::days(
                date.checked_sub(i64::from(slack).days()).ok()?,
                date.checked_add(i64::from(slack).days()).ok()?,
            );
            return Some((days, 3));
        }
    };
    Some((period, 2))
}

/// The day that is so many days, weeks, months or years before today.
fn days_ago(number: i64, unit: &str, today: &dyn Fn() -> Date) -> Option<Date> {
    let span = match unit.trim_end_matches('s') {
        "day" => number.days(),
        "week" => number.weeks(),
        "month" => number.months(),
        "year" => number.years(),
        _ => return None,
    };
    today().checked_sub(span).ok()
}

/// A name of a month, or its first three letters.
pub(crate) fn month(word: &str) -> Option<i8> {
    const NAMES: [&str; 12] = [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ];
    let word = word.to_ascii_lowercase();
    let is_month = |name: &str| name == word || name[..3] == word || (word == "sept" && name == "september");
    NAMES.iter().zip(1..).find(|(name, _)| is_month(name)).map(|(_, number)| number)
}

/// `8`, `08`, `8th`.
fn day(word: &str) -> Option<i8> {
    let digits = word.trim_end_matches(|c: char| c.is_ascii_lowercase());
    let is_day = matches!(&word[digits.len()..], "" | "st" | "nd" | "rd" | "th") && digits.len() <= 2;
    digits.parse().ok().filter(|day| is_day && (1..=31).contains(day))
}

/// A number of four digits from 1900 to 2099.
pub(crate) fn year(word: &str) -> Option<i16> {
    word.parse().ok().filter(|year| word.len() == 4 && (1900..2100).contains(year))
}

/// A whole name of a day, in lower case.
pub(crate) fn weekday(name: &str) -> Option<Weekday> {
    Some(match name {
        "monday" => Weekday::Monday,
        "tuesday" => Weekday::Tuesday,
        "wednesday" => Weekday::Wednesday,
        "thursday" => Weekday::Thursday,
        "friday" => Weekday::Friday,
        "saturday" => Weekday::Saturday,
        "sunday" => Weekday::Sunday,
        _ => return None,
    })
}

fn count(word: &str) -> Option<i64> {
    const WORDS: [&str; 12] =
        ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];
    let by_word = WORDS.iter().zip(1..).find(|(name, _)| **name == word).map(|(_, number)| number);
    let one = matches!(word, "a" | "an").then_some(1);
    by_word.or(one).or_else(|| word.parse().ok().filter(|number| (1..1_000).contains(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Wednesday.
    fn today() -> Date {
        Date::constant(2026, 6, 17)
    }

    fn near(question: &str, passage: &str) -> f64 {
        nearness(&periods(question, &today), passage, days(passage).into_iter())
    }

    #[test]
    fn a_date_is_read_in_all_usual_forms() {
        let expected: Date = "2023-05-08".parse().unwrap();
        for text in [
            "Ann (8 May, 2023): hello",
            "on May 8, 2023 we",
            "May 8th, 2023",
            "the 8th of May 2023",
            "8 may 2023",
            "2023-05-08",
            "at 2023-05-08T10:00:00Z",
            "8 Sep. 2023, no: 8 May 2023",
        ] {
            assert!(days(text).contains(&expected), "{text}: {:?}", days(text));
        }
        for text in
            ["you may 8 times", "version 2023", "31 of 40", "in May", "2023-13-40", "30 February 2023"]
        {
            assert_eq!(days(text), [], "{text}");
        }
    }

    #[test]
    fn what_is_dated_within_or_shortly_after_is_near() {
        let question = "What was decided in October 2023?";
        assert_eq!(near(question, "(13 October, 2023)"), 1.0);
        assert_eq!(near(question, "(30 September, 2023)"), 0.0);
        let soon = near(question, "(3 November, 2023)");
        assert!((0.5..0.9).contains(&soon), "{soon}");
        assert_eq!(near(question, "(13 October, 2022)"), 0.0);
        assert_eq!(near(question, "(13 March, 2024)"), 0.0);
        assert_eq!(near(question, "no date"), 0.0);
    }

    #[test]
    fn a_year_is_that_of_every_passage_that_names_it() {
        let question = "What was the net revenue in 2009?";
        for passage in ["net revenue was $5 in 2009 and $4 in 2008", "as of December 31, 2009", "1 May 2009"]
        {
            assert_eq!(near(question, passage), 1.0, "{passage}");
        }
        assert_eq!(near(question, "net revenue in 2010 and 2008"), 0.0);
        assert_eq!(near("What was the net revenue in May 2009?", "net revenue in 2009"), 0.0);
    }

    #[test]
    fn a_month_without_a_year_is_that_of_any_year() {
        assert_eq!(near("What happened in June?", "(10 June, 2022)"), 1.0);
        assert!(near("What happened in December?", "(2 January, 2022)") > 0.5);
        assert_eq!(near("What happened in June?", "(10 May, 2022)"), 0.0);
        assert_eq!(near("May I ask what happened?", "(10 May, 2022)"), 0.0, "a verb");
    }

    #[test]
    fn february_is_found_whether_or_not_it_has_29_days() {
        for question in ["What happened in February?", "What happened last February?"] {
            assert_eq!(near(question, "(10 February, 2026)"), 1.0, "{question}");
            assert_eq!(near(question, "(31 January, 2026)"), 0.0, "{question}");
        }
        assert_eq!(near("What happened in February?", "(29 February, 2024)"), 1.0);
        assert_eq!(near("What happened on 29 February?", "(29 February, 2020)"), 1.0);
        assert_eq!(near("What happened on 29 February?", "(28 February, 2022)"), 0.0);
    }

    #[test]
    fn relative_words_count_from_the_time_of_the_question() {
        for (question, day) in [
            ("what did we fix yesterday", "2026-06-16"),
            ("what did we fix last week", "2026-06-09"),
            ("what broke last Tuesday", "2026-06-16"),
            ("what broke on Friday", "2026-06-12"),
            ("the decision of two months ago", "2026-04-20"),
            ("what was released last month", "2026-05-04"),
            ("what was released last May", "2026-05-04"),
            ("what did we decide this may?", "2026-05-04"),
            ("what was released last year", "2025-02-03"),
            ("what was released in 2025", "2025-02-03"),
            ("what broke the day before yesterday", "2026-06-15"),
            ("what changed in the last 2 weeks", "2026-06-08"),
            ("what changed in the past three months", "2026-04-01"),
            ("what changed since May", "2026-06-10"),
            ("what changed since last week", "2026-06-17"),
            ("what changed since March 2026", "2026-06-10"),
            ("what changed since the 8th of May", "2026-06-10"),
            ("what changed after May 2026", "2026-06-01"),
        ] {
            assert_eq!(near(question, day), 1.0, "{question}");
            assert_eq!(near(question, "2024-01-01"), 0.0, "{question}");
        }
        assert!(near("what broke the day before yesterday", "2026-06-16") < 1.0);
        assert_eq!(near("what changed after May 2026", "2026-05-31"), 0.0);
        for question in ["how was it before May 2026", "how was it until 2025"] {
            assert_eq!(near(question, "2024-01-01"), 1.0, "{question}");
            assert_eq!(near(question, "2026-05-02"), 0.0, "{question}");
        }
        for question in ["what did we do the week before May 3, 2026", "and the Sunday after 3 May 2026"] {
            assert_eq!(near(question, "2026-05-03"), 1.0, "{question}");
            assert_eq!(near(question, "2026-04-01"), 0.0, "{question}");
        }
    }

    #[test]
    fn a_question_without_a_time_names_none() {
        for question in [
            "how do we deploy",
            "what may fail",
            "this may be a race",
            "this may not be a race",
            "why this may have failed",
            "the last 2000 uploads",
            "it fails after 2000 uploads",
            "what runs before may fail",
            "the last 3 uploads",
            "error 2024 in march_loop",
            "on time",
            "a b ago",
            "",
        ] {
            assert_eq!(periods(question, &today), [], "{question}");
        }
    }
}
