//! A small SVG writer: shapes are appended as text, numbers are rounded to 0.01 pixels, text is escaped.
//!
//! No element has an id, so several figures can be embedded in one HTML page; clipping uses nested `svg` elements.

use std::fmt::Write as _;

use super::WIDTH;

/// Fonts that come with the readers' systems.
const FONTS: &str =
    "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif";

/// An SVG document under construction. Attributes are passed as text: `fill="none" stroke="#000"`.
pub(crate) struct Svg {
    body: String,
}

impl Svg {
    pub(crate) fn new() -> Self {
        Self { body: String::new() }
    }

    pub(crate) fn line(&mut self, from: [f64; 2], to: [f64; 2], attributes: &str) {
        let [x1, y1, x2, y2] = [from[0], from[1], to[0], to[1]].map(number);
        self.element(format_args!(r#"<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" {attributes}/>"#));
    }

    pub(crate) fn rect(&mut self, corner: [f64; 2], size: [f64; 2], attributes: &str) {
        let [x, y, w, h] = [corner[0], corner[1], size[0], size[1]].map(number);
        self.element(format_args!(r#"<rect x="{x}" y="{y}" width="{w}" height="{h}" {attributes}/>"#));
    }

    pub(crate) fn circle(&mut self, centre: [f64; 2], radius: f64, attributes: &str) {
        let [x, y, r] = [centre[0], centre[1], radius].map(number);
        self.element(format_args!(r#"<circle cx="{x}" cy="{y}" r="{r}" {attributes}/>"#));
    }

    /// Draws an upright diamond.
    pub(crate) fn diamond(&mut self, [x, y]: [f64; 2], radius: f64, attributes: &str) {
        self.polygon(&[[x - radius, y], [x, y - radius], [x + radius, y], [x, y + radius]], attributes);
    }

    /// Draws a diagonal cross.
    pub(crate) fn cross(&mut self, [x, y]: [f64; 2], radius: f64, attributes: &str) {
        let [left, right, top, bottom] = [x - radius, x + radius, y - radius, y + radius];
        let d = path_data(&[[left, top], [right, bottom]]) + &path_data(&[[left, bottom], [right, top]]);
        self.path(&d, &format!(r#"fill="none" stroke-linecap="round" {attributes}"#));
    }

    pub(crate) fn polygon(&mut self, points: &[[f64; 2]], attributes: &str) {
        let d = path_data(points) + "Z";
        self.path(&d, attributes);
    }

    /// Draws a path from its data; see [`path_data`].
    pub(crate) fn path(&mut self, data: &str, attributes: &str) {
        self.element(format_args!(r#"<path d="{data}" {attributes}/>"#));
    }

    pub(crate) fn text(&mut self, at: [f64; 2], text: &str, attributes: &str) {
        let [x, y] = at.map(number);
        let text = escape(text);
        self.element(format_args!(r#"<text x="{x}" y="{y}" {attributes}>{text}</text>"#));
    }

    /// Adds a tooltip to what `inside` draws.
    pub(crate) fn titled(&mut self, title: &str, inside: impl FnOnce(&mut Self)) {
        let title = escape(title);
        self.element(format_args!("<g><title>{title}</title>"));
        inside(self);
        self.element(format_args!("</g>"));
    }

    /// Clips what `inside` draws to a rectangle.
    pub(crate) fn clipped(&mut self, corner: [f64; 2], size: [f64; 2], inside: impl FnOnce(&mut Self)) {
        let [x, y, w, h] = [corner[0], corner[1], size[0], size[1]].map(number);
        self.element(format_args!(r#"<svg x="{x}" y="{y}" width="{w}" height="{h}" viewBox="{x} {y} {w} {h}">"#));
        inside(self);
        self.element(format_args!("</svg>"));
    }

    /// Returns the document, `height` pixels high; `description` is for screen readers.
    pub(crate) fn finish(self, height: f64, description: &str) -> String {
        let (width, height, description) = (number(WIDTH), number(height), escape(description));
        format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" aria-label="{description}" font-family="{FONTS}" font-size="12">
<rect width="{width}" height="{height}" fill="#fff"/>
{}</svg>
"##,
            self.body
        )
    }

    fn element(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing into a String cannot fail.
        let _ = writeln!(self.body, "{element}");
    }
}

/// The data of a path through all points.
pub(crate) fn path_data(points: &[[f64; 2]]) -> String {
    let mut data = String::new();
    for (i, [x, y]) in points.iter().enumerate() {
        let _ = write!(data, "{}{} {}", if i == 0 { 'M' } else { 'L' }, number(*x), number(*y));
    }
    data
}

/// Formats a number with at most two decimals, without trailing zeros and never as "-0". A number that is not finite
/// becomes 0, although the drawing code filters those out.
pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "0".to_owned();
    }
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// Escapes a text for SVG and HTML, in elements and in quoted attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // XML 1.0 does not allow other control characters.
            c if c.is_control() && !matches!(c, '\n' | '\t') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The approximate width of a text. There are no font files to measure it, so this tends to overestimate.
pub(crate) fn text_width(text: &str, size: f64) -> f64 {
    let em: f64 = text
        .chars()
        .map(|c| match c {
            'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' => 0.3,
            'f' | 't' | 'r' | ' ' | '\u{a0}' | '(' | ')' | '-' | '/' => 0.4,
            'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.95,
            c if c.is_uppercase() => 0.7,
            _ => 0.6,
        })
        .sum();
    em * size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_finite() {
        assert_eq!(
            [1.0, 1.25, -0.001, 2.999, f64::NAN, f64::INFINITY].map(number),
            ["1", "1.25", "0", "3", "0", "0"].map(String::from)
        );
    }

    #[test]
    fn text_is_escaped() {
        let mut svg = Svg::new();
        svg.text([0.0, 0.0], "<script>\"&'\u{7}", "");
        let text = svg.finish(10.0, "\"><script>");
        assert!(!text.contains("<script>") && text.contains("&lt;script&gt;&quot;&amp;&#39;\u{fffd}"));
    }
}
