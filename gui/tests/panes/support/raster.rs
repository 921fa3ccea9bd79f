//! Draws egui's meshes on the CPU, so that snapshots have the same bytes on every machine and need no graphics driver.
//!
//! The rules are a GPU's: vertices snapped to 1/256 of a pixel, the top-left fill rule, samples at pixel centers,
//! bilinear filtering, colours with premultiplied alpha, and blending in gamma space into 8 bits a channel.
//!
//! This is a twentieth of all the time of the tests of the window, which are not optimised: it is written without closures.

use std::collections::HashMap;
use std::ops::Range;

use egui::epaint::{ClippedPrimitive, ImageDelta, Mesh, Primitive, Vertex};
use egui::{
    Color32, Context, FullOutput, Rect, TextureFilter, TextureId, TextureWrapMode, TexturesDelta,
};
use egui_kittest::TestRenderer;
use image::RgbaImage;

/// Positions in a pixel that a vertex can be snapped to, along each axis.
const SUBPIXELS: i64 = 256;

/// A renderer of test windows that uses nothing but the CPU.
#[derive(Default)]
pub(crate) struct Rasteriser {
    textures: HashMap<TextureId, Texture>,
}

impl TestRenderer for Rasteriser {
    fn handle_delta(&mut self, delta: &mut TexturesDelta) {
        for (id, images) in delta.set.drain() {
            for image in images {
                self.update(id, &image);
            }
        }
        for id in delta.free.drain() {
            self.textures.remove(&id);
        }
    }

    fn render(&mut self, ctx: &Context, output: &FullOutput) -> Result<RgbaImage, String> {
        let scale = ctx.pixels_per_point();
        let size = ctx.content_rect().size() * scale;
        let mut canvas = Canvas::new(size.x.round() as usize, size.y.round() as usize);
        for ClippedPrimitive {
            clip_rect,
            primitive,
        } in ctx.tessellate(output.shapes.clone(), scale)
        {
            let Primitive::Mesh(mesh) = primitive else {
                return Err("paint callbacks need a graphics driver".to_owned());
            };
            let texture = self.textures.get(&mesh.texture_id);
            let texture = texture.ok_or_else(|| format!("{:?} has no image", mesh.texture_id))?;
            canvas.draw(&mesh, texture, &canvas.clip(clip_rect, scale), scale);
        }
        canvas.into_image()
    }
}

impl Rasteriser {
    fn update(&mut self, id: TextureId, delta: &ImageDelta) {
        let egui::ImageData::Color(image) = &delta.image;
        let texture = self.textures.entry(id).or_default();
        texture.nearest = delta.options.magnification == TextureFilter::Nearest;
        texture.wrap = delta.options.wrap_mode;
        let [width, height] = image.size;
        let Some([left, top]) = delta.pos else {
            texture.size = image.size;
            texture.texels.clone_from(&image.pixels);
            return;
        };
        for row in 0..height {
            let from = &image.pixels[row * width..][..width];
            let start = (top + row) * texture.size[0] + left;
            texture.texels[start..start + width].copy_from_slice(from);
        }
    }
}

/// Red, green, blue and alpha, each from 0 to 1.
type Channels = [f32; 4];

fn channels(color: Color32) -> Channels {
    let [red, green, blue, alpha] = color.to_array();
    [share(red), share(green), share(blue), share(alpha)]
}

fn share(byte: u8) -> f32 {
    f32::from(byte) / 255.0
}

/// The image of one texture and how it is sampled.
#[derive(Default)]
struct Texture {
    size: [usize; 2],
    texels: Vec<Color32>,
    nearest: bool,
    wrap: TextureWrapMode,
}

impl Texture {
    fn texel(&self, x: i64, y: i64) -> Channels {
        let [width, height] = self.size;
        channels(self.texels[self.wrapped(y, height) * width + self.wrapped(x, width)])
    }

    /// The row or column that a coordinate outside the texture stands for.
    fn wrapped(&self, coordinate: i64, size: usize) -> usize {
        let len = size as i64;
        let inside = match self.wrap {
            TextureWrapMode::ClampToEdge => coordinate.clamp(0, len - 1),
            TextureWrapMode::Repeat => coordinate.rem_euclid(len),
            TextureWrapMode::MirroredRepeat => {
                let phase = coordinate.rem_euclid(2 * len);
                phase.min(2 * len - 1 - phase)
            }
        };
        inside as usize
    }

    fn sample(&self, u: f32, v: f32) -> Channels {
        let (x, y) = (u * self.size[0] as f32, v * self.size[1] as f32);
        if self.nearest {
            return self.texel(x.floor() as i64, y.floor() as i64);
        }
        let (x, y) = (x - 0.5, y - 0.5);
        let (column, row) = (x.floor(), y.floor());
        let (right, below) = (x - column, y - row);
        let (column, row) = (column as i64, row as i64);
        let top = mix(self.texel(column, row), self.texel(column + 1, row), right);
        let bottom = mix(
            self.texel(column, row + 1),
            self.texel(column + 1, row + 1),
            right,
        );
        mix(top, bottom, below)
    }
}

fn mix(from: Channels, to: Channels, share: f32) -> Channels {
    let rest = 1.0 - share;
    [
        from[0] * rest + to[0] * share,
        from[1] * rest + to[1] * share,
        from[2] * rest + to[2] * share,
        from[3] * rest + to[3] * share,
    ]
}

fn product(one: Channels, other: Channels) -> Channels {
    [
        one[0] * other[0],
        one[1] * other[1],
        one[2] * other[2],
        one[3] * other[3],
    ]
}

/// The pixels that a primitive may change.
struct Clip {
    columns: Range<i64>,
    rows: Range<i64>,
}

/// The picture, row by row.
struct Canvas {
    width: usize,
    height: usize,
    pixels: Vec<[u8; 4]>,
}

impl Canvas {
    fn new(width: usize, height: usize) -> Self {
        let pixels = vec![[0; 4]; width * height];
        Self {
            width,
            height,
            pixels,
        }
    }

    fn clip(&self, rect: Rect, scale: f32) -> Clip {
        let pixel = |point: f32, len: usize| ((point * scale).round() as i64).clamp(0, len as i64);
        Clip {
            columns: pixel(rect.min.x, self.width)..pixel(rect.max.x, self.width),
            rows: pixel(rect.min.y, self.height)..pixel(rect.max.y, self.height),
        }
    }

    fn draw(&mut self, mesh: &Mesh, texture: &Texture, clip: &Clip, scale: f32) {
        for corners in mesh.indices.chunks_exact(3) {
            let corners = [0, 1, 2].map(|corner| mesh.vertices[corners[corner] as usize]);
            if let Some(triangle) = Triangle::new(corners, scale) {
                self.fill(&triangle, texture, clip);
            }
        }
    }

    fn fill(&mut self, triangle: &Triangle, texture: &Texture, clip: &Clip) {
        let plain = triangle.plain_color(texture);
        let [top, bottom] = triangle.rows();
        for row in top.max(clip.rows.start)..bottom.min(clip.rows.end) {
            let columns = triangle.columns(row, &clip.columns);
            if columns.is_empty() {
                continue;
            }
            let start = row as usize * self.width;
            let pixels = &mut self.pixels[start..start + self.width];
            match plain {
                Some(color) => {
                    let pixels = &mut pixels[columns.start as usize..columns.end as usize];
                    blend_plain(pixels, color);
                }
                None => {
                    for column in columns {
                        let color = triangle.color(texture, column, row);
                        let pixel = &mut pixels[column as usize];
                        *pixel = blended(*pixel, color);
                    }
                }
            }
        }
    }

    fn into_image(self) -> Result<RgbaImage, String> {
        let bytes = self.pixels.into_flattened();
        let image = RgbaImage::from_raw(self.width as u32, self.height as u32, bytes);
        image.ok_or_else(|| "the picture has other sizes than its pixels".to_owned())
    }
}

fn blended(pixel: [u8; 4], color: Channels) -> [u8; 4] {
    let keep = 1.0 - color[3];
    let alpha = share(pixel[3]);
    [
        byte(color[0] + share(pixel[0]) * keep),
        byte(color[1] + share(pixel[1]) * keep),
        byte(color[2] + share(pixel[2]) * keep),
        byte(color[3] * (1.0 - alpha) + alpha),
    ]
}

/// Blends one color with pixels, most of which are alike.
fn blend_plain(pixels: &mut [[u8; 4]], color: Channels) {
    let mut known: Option<[[u8; 4]; 2]> = None;
    for pixel in pixels {
        *pixel = match known {
            Some([before, after]) if before == *pixel => after,
            _ => {
                let after = blended(*pixel, color);
                known = Some([*pixel, after]);
                after
            }
        };
    }
}

/// The nearest of 256 levels.
fn byte(channel: f32) -> u8 {
    if channel >= 1.0 {
        return u8::MAX;
    }
    let scaled = channel.max(0.0) * 255.0;
    let below = scaled as u8;
    match scaled - f32::from(below) >= 0.5 {
        true => below + 1,
        false => below,
    }
}

/// The side of a triangle on which a point lies: `along_x * x + along_y * y + constant` is 0 or more inside.
#[derive(Clone, Copy)]
struct Side {
    along_x: i64,
    along_y: i64,
    constant: i64,
    /// 0 where pixel centers on the side itself belong to this triangle, else 1.
    bias: i64,
}

impl Side {
    /// The side from one corner to the next, with the inside to its right on a screen whose y grows downwards.
    fn new([from_x, from_y]: [i64; 2], [to_x, to_y]: [i64; 2]) -> Self {
        let (along_x, along_y) = (from_y - to_y, to_x - from_x);
        let is_top = along_x == 0 && along_y > 0;
        let is_left = along_x > 0;
        Self {
            along_x,
            along_y,
            constant: -(along_x * from_x + along_y * from_y),
            bias: i64::from(!is_top && !is_left),
        }
    }

    fn at(&self, column: i64, row: i64) -> i64 {
        self.along_x * center(column) + self.along_y * center(row) + self.constant
    }
}

/// The subpixel in the middle of a pixel.
fn center(pixel: i64) -> i64 {
    pixel * SUBPIXELS + SUBPIXELS / 2
}

/// Three corners in an order in which each side has the inside to its right.
struct Triangle {
    corners: [Vertex; 3],
    snapped: [[i64; 2]; 3],
    /// Sides opposite to the corners.
    sides: [Side; 3],
    /// Twice the area, in subpixels.
    area: i64,
}

impl Triangle {
    /// Returns `None` for a triangle without an area, or with a corner at no finite place, which GPUs discard too.
    fn new(mut corners: [Vertex; 3], scale: f32) -> Option<Self> {
        if corners.iter().any(|corner| !corner.pos.is_finite()) {
            return None;
        }
        let snap = |point: f32| (point * scale * SUBPIXELS as f32).round() as i64;
        let snapped =
            |corners: &[Vertex; 3]| corners.map(|corner| [snap(corner.pos.x), snap(corner.pos.y)]);
        let area = |[a, b, c]: [[i64; 2]; 3]| {
            (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
        };
        let doubled = area(snapped(&corners));
        if doubled == 0 {
            return None;
        }
        if doubled < 0 {
            corners.swap(1, 2);
        }
        let places = snapped(&corners);
        let [a, b, c] = places;
        Some(Self {
            corners,
            snapped: places,
            sides: [Side::new(b, c), Side::new(c, a), Side::new(a, b)],
            area: doubled.abs(),
        })
    }

    /// The first row that may have a pixel, and the row after the last.
    fn rows(&self) -> [i64; 2] {
        let rows = self.snapped.map(|[_, y]| y.div_euclid(SUBPIXELS));
        let [a, b, c] = rows;
        [a.min(b).min(c), a.max(b).max(c) + 1]
    }

    /// The columns of a row whose centers are inside.
    fn columns(&self, row: i64, clip: &Range<i64>) -> Range<i64> {
        let (mut start, mut end) = (clip.start, clip.end);
        for side in self.sides {
            // `at(column) = at(0) + step * column`, which has to be `bias` or more.
            let (step, missing) = (side.along_x * SUBPIXELS, side.bias - side.at(0, row));
            match step {
                0 if missing > 0 => return 0..0,
                0 => (),
                1.. => {
                    let first = -(-missing).div_euclid(step);
                    start = start.max(first);
                }
                _ => end = end.min((-missing).div_euclid(-step) + 1),
            }
        }
        start..end.max(start)
    }

    /// The color that all pixels have where no corner has another color or texel.
    fn plain_color(&self, texture: &Texture) -> Option<Channels> {
        let [first, second, third] = &self.corners;
        let is_plain = |other: &Vertex| other.color == first.color && other.uv == first.uv;
        (is_plain(second) && is_plain(third)).then(|| {
            product(
                channels(first.color),
                texture.sample(first.uv.x, first.uv.y),
            )
        })
    }

    fn color(&self, texture: &Texture, column: i64, row: i64) -> Channels {
        let [first, second, third] = &self.corners;
        let [a, b, c] = &self.sides;
        let area = self.area as f32;
        let weights = [
            a.at(column, row) as f32 / area,
            b.at(column, row) as f32 / area,
            c.at(column, row) as f32 / area,
        ];
        let u = weighted([first.uv.x, second.uv.x, third.uv.x], weights);
        let v = weighted([first.uv.y, second.uv.y, third.uv.y], weights);
        let [one, two, three] = [
            channels(first.color),
            channels(second.color),
            channels(third.color),
        ];
        let color = [
            weighted([one[0], two[0], three[0]], weights),
            weighted([one[1], two[1], three[1]], weights),
            weighted([one[2], two[2], three[2]], weights),
            weighted([one[3], two[3], three[3]], weights),
        ];
        product(color, texture.sample(u, v))
    }
}

fn weighted(values: [f32; 3], weights: [f32; 3]) -> f32 {
    values[0] * weights[0] + values[1] * weights[1] + values[2] * weights[2]
}
