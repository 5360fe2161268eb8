//! The displayed window, and the windows in the heatmap.

use std::ops::Range as Span;
use std::time::Duration;

use tierscope_core::Time;
use tierscope_record::Commit;

/// Range of replay speeds.
pub const SPEEDS: Span<f64> = 0.01..1000.0;

/// How the displayed window advances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Motion {
    /// The newest window is displayed as soon as it is committed.
    Follow,
    /// Windows advance at recorded time, times the replay speed.
    Play,
    /// The displayed window does not advance.
    Still,
}

/// A time scale, in windows; a column of the heatmap covers 2^zoom of them.
///
/// Invariant: the displayed window exists, and every column in view holds a window up to it.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    /// Number of committed windows.
    windows: usize,
    /// The displayed window.
    head: usize,
    motion: Motion,
    /// Replay position, as recorded time.
    position: Time,
    /// Replay speed, in recorded seconds per second.
    speed: f64,
    zoom: u32,
    /// Number of columns that fit.
    room: usize,
    /// One past the last column in view; `None` if the last one is that of the displayed window.
    edge: Option<usize>,
}

impl Timeline {
    pub(crate) fn new(motion: Motion, speed: f64) -> Self {
        let speed = speed.clamp(SPEEDS.start, SPEEDS.end);
        let position = Time(0);
        Self { windows: 0, head: 0, motion, position, speed, zoom: 0, room: 1, edge: None }
    }

    /// The displayed window.
    pub(crate) fn head(&self) -> Option<usize> {
        (self.head < self.windows).then_some(self.head)
    }

    pub(crate) fn motion(&self) -> Motion {
        self.motion
    }

    pub(crate) fn speed(&self) -> f64 {
        self.speed
    }

    /// Windows per column.
    pub(crate) fn per_column(&self) -> usize {
        1 << self.zoom
    }

    /// The columns in view: column c holds the windows from `c * per_column` on.
    pub(crate) fn columns(&self) -> Span<usize> {
        let end = self.edge.unwrap_or(usize::MAX).min(self.all_columns());
        end.saturating_sub(self.room)..end
    }

    /// Whether the displayed window is in view.
    pub(crate) fn is_at_head(&self) -> bool {
        self.columns().end == self.all_columns()
    }

    /// Number of columns up to the displayed window.
    fn all_columns(&self) -> usize {
        self.head().map_or(0, |head| head / self.per_column() + 1)
    }

    /// Sets the committed windows.
    pub(crate) fn set_windows(&mut self, commits: &[Commit]) {
        self.windows = commits.len();
        if self.motion == Motion::Follow {
            self.head = self.windows.saturating_sub(1);
            self.take_position(commits);
        }
        self.settle();
    }

    /// Sets the number of columns that fit.
    pub(crate) fn set_room(&mut self, columns: usize) {
        self.room = columns.max(1);
        self.settle();
    }

    /// Advances a replay; at the last window it starts to follow if the recording `grows`, else
    /// pauses.
    pub(crate) fn advance(&mut self, elapsed: Duration, commits: &[Commit], grows: bool) {
        let (Motion::Play, Some(last)) = (self.motion, commits.last()) else { return };
        self.position = self.position.max(commits[0].end) + elapsed.mul_f64(self.speed);
        let passed = commits.partition_point(|row| row.end <= self.position);
        self.head = passed.saturating_sub(1);
        if self.position >= last.end {
            self.motion = if grows { Motion::Follow } else { Motion::Still };
        }
        self.settle();
    }

    /// Time until the next window of the replay.
    pub(crate) fn due(&self, commits: &[Commit]) -> Option<Duration> {
        let next = commits.get(self.head + 1).filter(|_| self.motion == Motion::Play)?;
        Some(next.end.since(self.position).div_f64(self.speed))
    }

    /// Displays the window at `time`.
    pub(crate) fn seek_time(&mut self, time: Time, commits: &[Commit]) {
        let index = commits.partition_point(|row| row.end <= time);
        self.seek(index.min(commits.len().saturating_sub(1)), commits);
    }

    /// Displays the window `columns` columns further on; stops following.
    pub(crate) fn step(&mut self, columns: i64, commits: &[Commit]) {
        let windows = columns.unsigned_abs() as usize * self.per_column();
        let head = match columns < 0 {
            true => self.head.saturating_sub(windows),
            false => self.head.saturating_add(windows),
        };
        self.seek(head, commits);
    }

    /// Displays the first window.
    pub(crate) fn seek_start(&mut self, commits: &[Commit]) {
        self.seek(0, commits);
    }

    /// Displays the newest window, and follows if the recording `grows`, else pauses.
    pub(crate) fn seek_end(&mut self, commits: &[Commit], grows: bool) {
        self.seek(usize::MAX, commits);
        self.motion = if grows { Motion::Follow } else { Motion::Still };
    }

    fn seek(&mut self, head: usize, commits: &[Commit]) {
        self.head = head.min(commits.len().saturating_sub(1));
        self.edge = None;
        if self.motion == Motion::Follow {
            self.motion = Motion::Still;
        }
        self.take_position(commits);
        self.settle();
    }

    fn take_position(&mut self, commits: &[Commit]) {
        self.position = commits.get(self.head).map_or(Time(0), |row| row.end);
    }

    /// Pauses, or resumes with `motion`.
    pub(crate) fn toggle(&mut self, motion: Motion, commits: &[Commit]) {
        self.motion = if self.motion == Motion::Still { motion } else { Motion::Still };
        let at_end = self.head + 1 >= commits.len();
        match self.motion {
            Motion::Follow => self.seek_end(commits, true),
            Motion::Play if at_end => self.seek_start(commits),
            Motion::Play | Motion::Still => {}
        }
    }

    /// Multiplies the replay speed.
    pub(crate) fn change_speed(&mut self, factor: f64) {
        self.speed = (self.speed * factor).clamp(SPEEDS.start, SPEEDS.end);
    }

    /// Scrolls the heatmap by columns, to later ones if positive.
    pub(crate) fn scroll(&mut self, columns: i64) {
        let edge = self.columns().end;
        let step = columns.unsigned_abs() as usize;
        let edge = match columns < 0 {
            true => edge.saturating_sub(step),
            false => edge.saturating_add(step),
        };
        self.edge = Some(edge);
        self.settle();
    }

    /// Halves the number of windows per column.
    pub(crate) fn zoom_in(&mut self) {
        self.set_zoom(self.zoom.saturating_sub(1));
    }

    /// Doubles the number of windows per column, unless all windows are in view already.
    pub(crate) fn zoom_out(&mut self) {
        if self.all_columns() > self.room {
            self.set_zoom(self.zoom + 1);
        }
    }

    /// One window per column, with the displayed one in view.
    pub(crate) fn reset(&mut self) {
        self.edge = None;
        self.zoom = 0;
    }

    fn set_zoom(&mut self, zoom: u32) {
        let windows = self.edge.map(|edge| edge << self.zoom);
        self.zoom = zoom;
        self.edge = windows.map(|windows| windows.div_ceil(self.per_column()));
        self.settle();
    }

    /// Restores the invariant. A heatmap scrolled to its end follows the displayed window.
    fn settle(&mut self) {
        self.head = self.head.min(self.windows.saturating_sub(1));
        let all = self.all_columns();
        let edge = self.edge.map(|edge| edge.clamp(self.room.min(all), all));
        self.edge = edge.filter(|edge| *edge < all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `count` windows of one second.
    fn commits(count: usize) -> Vec<Commit> {
        let at = |seconds: u64| Time(seconds * 1_000_000_000);
        let row = |n: usize| Commit {
            window: n as u64,
            start: at(n as u64),
            end: at(n as u64 + 1),
            samples: 40,
            cpu: Default::default(),
            layout: 0,
            layout_taken: Time(0),
            regions: 0,
            region_bytes: 0,
            mapped_bytes: 0,
            hot_bytes: 0,
            ends: Default::default(),
            crcs: Default::default(),
            row_crc: 0,
            synced: 0,
        };
        (0..count).map(row).collect()
    }

    fn timeline(motion: Motion, windows: usize, room: usize) -> (Timeline, Vec<Commit>) {
        let commits = commits(windows);
        let mut timeline = Timeline::new(motion, 1.0);
        timeline.set_room(room);
        timeline.set_windows(&commits);
        (timeline, commits)
    }

    #[test]
    fn follows_until_the_user_scrolls_back() {
        let (mut timeline, mut all) = timeline(Motion::Follow, 10, 4);
        assert_eq!((timeline.head(), timeline.columns()), (Some(9), 6..10));
        timeline.step(-2, &all);
        assert_eq!((timeline.head(), timeline.motion()), (Some(7), Motion::Still));
        all.extend(commits(12).split_off(10));
        timeline.set_windows(&all);
        assert_eq!(timeline.head(), Some(7));
        timeline.seek_end(&all, true);
        assert_eq!((timeline.head(), timeline.motion()), (Some(11), Motion::Follow));
    }

    // Ten windows of one second, at double speed.
    #[test]
    fn plays_at_its_speed_to_the_end() {
        let (mut timeline, all) = timeline(Motion::Play, 10, 4);
        timeline.change_speed(2.0);
        timeline.seek_start(&all);
        assert_eq!(timeline.due(&all), Some(Duration::from_millis(500)));
        timeline.advance(Duration::from_millis(1600), &all, false);
        assert_eq!(timeline.head(), Some(3));
        timeline.advance(Duration::from_secs(60), &all, false);
        assert_eq!((timeline.head(), timeline.motion()), (Some(9), Motion::Still));
        timeline.toggle(Motion::Play, &all);
        assert_eq!((timeline.head(), timeline.motion()), (Some(0), Motion::Play), "from the start");
    }

    #[test]
    fn follows_at_the_end_of_a_recording_in_progress() {
        let (mut timeline, all) = timeline(Motion::Play, 3, 4);
        timeline.advance(Duration::from_secs(9), &all, true);
        assert_eq!(timeline.motion(), Motion::Follow);
    }

    // Ten windows in five columns of two, the first four of which are in view; and zoomed in again.
    #[test]
    fn zoom_keeps_the_edge_in_its_place() {
        let (mut timeline, _) = timeline(Motion::Follow, 10, 4);
        timeline.scroll(-2);
        assert_eq!(timeline.columns(), 4..8);
        timeline.zoom_out();
        assert_eq!((timeline.columns(), timeline.per_column()), (0..4, 2));
        timeline.zoom_in();
        assert_eq!(timeline.columns(), 4..8);
        timeline.scroll(99);
        assert!(timeline.is_at_head() && timeline.edge.is_none());
    }

    #[derive(Clone, Debug)]
    enum Do {
        Scroll(i64),
        Step(i64),
        In,
        Out,
        Reset,
        Start,
        End(bool),
        Toggle(bool),
        Advance(u64),
        Speed(f64),
        Room(usize),
        More(usize),
    }

    fn some_do() -> impl Strategy<Value = Do> {
        prop_oneof![
            (-300i64..300).prop_map(Do::Scroll),
            (-300i64..300).prop_map(Do::Step),
            Just(Do::In),
            Just(Do::Out),
            Just(Do::Reset),
            Just(Do::Start),
            any::<bool>().prop_map(Do::End),
            any::<bool>().prop_map(Do::Toggle),
            (0u64..1 << 40).prop_map(Do::Advance),
            (0.01f64..100.0).prop_map(Do::Speed),
            (0usize..50).prop_map(Do::Room),
            (0usize..40).prop_map(Do::More),
        ]
    }

    proptest! {
        // After any actions, the displayed window exists, and so do the columns in view.
        #[test]
        fn the_view_never_leaves_the_recording(acts in prop::collection::vec(some_do(), 0..60)) {
            let (mut line, mut all) = timeline(Motion::Play, 3, 10);
            for act in acts {
                match act {
                    Do::Scroll(n) => line.scroll(n),
                    Do::Step(n) => line.step(n, &all),
                    Do::In => line.zoom_in(),
                    Do::Out => line.zoom_out(),
                    Do::Reset => line.reset(),
                    Do::Start => line.seek_start(&all),
                    Do::End(grows) => line.seek_end(&all, grows),
                    Do::Toggle(play) => line.toggle(if play { Motion::Play } else { Motion::Follow }, &all),
                    Do::Advance(nanos) => line.advance(Duration::from_nanos(nanos), &all, true),
                    Do::Speed(factor) => line.change_speed(factor),
                    Do::Room(columns) => line.set_room(columns),
                    Do::More(n) => {
                        all = commits(all.len() + n);
                        line.set_windows(&all);
                    }
                }
                let head = line.head().expect("there are windows");
                let columns = line.columns();
                prop_assert!(head < all.len());
                prop_assert!(!columns.is_empty() && columns.len() <= line.room);
                prop_assert!((columns.end - 1) * line.per_column() <= head);
                prop_assert!(SPEEDS.start <= line.speed() && line.speed() <= SPEEDS.end);
            }
        }
    }
}
