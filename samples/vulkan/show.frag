#version 450
// The pixel of the image below this pixel of the screen. An image of the screen's size comes out as it is, bit for bit.
layout(set = 0, binding = 0) uniform sampler2D image;
layout(push_constant) uniform Screen { ivec2 size; } screen;
layout(location = 0) out vec4 color;
void main()
{
    color = texelFetch(image, ivec2(gl_FragCoord.xy) * textureSize(image, 0) / screen.size, 0);
}
