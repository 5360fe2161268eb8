//! Resident bytes by tier over time, as SVG.

use tierscope_core::units;

use super::Svg;
use super::frame::{Frame, HEIGHT, WIDTH};
use super::wss::{middle, span};
use crate::footprint::Point;
use crate::tiers::TierName;

/// CSS classes of the tiers; further tiers share the last.
const CLASSES: [&str; 4] = ["tier-0", "tier-1", "tier-2", "tier-3"];

/// Stacked chart of resident bytes by tier over time, as an element of the page. `None` if no point
/// has data.
pub(crate) fn by_tier(points: &[Point], tiers: &[TierName]) -> Option<String> {
    let known: Vec<&Point> = points.iter().filter(|point| !point.tier_bytes.is_empty()).collect();
    let most = known.iter().map(|point| below(point, tiers.len())).max()?;
    let mut svg = Svg::new(WIDTH, HEIGHT, "Resident bytes by tier over time");
    let frame = Frame::new(0.0, span(points), most);
    frame.draw_bytes(&mut svg);
    frame.draw_times(&mut svg);
    for tier in 0..tiers.len() {
        draw_layer(&mut svg, &frame, &known, tier);
    }
    let names: Vec<String> = tiers.iter().map(TierName::short).collect();
    let legend: Vec<_> = (0..).map(class).zip(names.iter().map(String::as_str)).collect();
    frame.draw_legend(&mut svg, &legend);
    Some(svg.element())
}

fn class(tier: usize) -> &'static str {
    CLASSES[tier.min(CLASSES.len() - 1)]
}

/// Sum of the bytes of the tiers before `tier`.
fn below(point: &Point, tier: usize) -> u64 {
    point.tier_bytes.iter().take(tier).fold(0, |sum, bytes| sum.saturating_add(*bytes))
}

/// Draws the layer of a tier on top of the previous ones. A single point is drawn as a bar over its
/// time, to be visible.
fn draw_layer(svg: &mut Svg, frame: &Frame, points: &[&Point], tier: usize) {
    if let [point] = points {
        let (foot, head) = (frame.y(below(point, tier)), frame.y(below(point, tier + 1)));
        let (left, right) = (frame.x(point.from_ns as f64), frame.x(point.to_ns as f64));
        let hint = units::about_size(point.tier_bytes.get(tier).copied().unwrap_or(0));
        return svg.bar((left, head), (right - left, foot - head), class(tier), &hint);
    }
    let x = |point: &Point| frame.x(middle(point));
    let head = points.iter().map(|point| (x(point), frame.y(below(point, tier + 1))));
    let foot = points.iter().rev().map(|point| (x(point), frame.y(below(point, tier))));
    svg.area(head.chain(foot), class(tier));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(number: u64, tier_bytes: &[u64]) -> Point {
        Point {
            from_ns: number,
            to_ns: number + 1,
            mapped_bytes: 0,
            resident_bytes: None,
            tier_bytes: tier_bytes.into(),
            accessed_bytes: 0,
            hot_bytes: 0,
            unknown_bytes: 0,
            hot_min: 0,
            hot_max: 0,
        }
    }

    fn tiers() -> [TierName; 2] {
        [0, 1].map(|n| TierName { tier: Some(n), nodes: vec![n.into()] })
    }

    #[test]
    fn nothing_known_is_nothing_drawn() {
        assert_eq!(by_tier(&[point(0, &[])], &tiers()), None);
        assert_eq!(by_tier(&[], &tiers()), None);
    }

    #[test]
    fn a_tier_lies_upon_those_before_it() {
        assert_eq!(below(&point(0, &[3, 4]), 0), 0);
        assert_eq!(below(&point(0, &[3, 4]), 2), 7);
        assert_eq!(below(&point(0, &[u64::MAX, 4]), 2), u64::MAX);
        let svg = by_tier(&[point(0, &[3, 4]), point(1, &[2])], &tiers()).unwrap();
        assert!(svg.matches("<polygon").count() == 2 && svg.contains("tier 1"), "{svg}");
        let one = by_tier(&[point(0, &[3, 4])], &tiers()).unwrap();
        assert!(one.contains("class=\"tier-1\"><title>4 B"), "{one}");
    }
}
