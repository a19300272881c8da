// refork: rows=32 cols=36 temp=rows*cols power=rows*cols out=rows*cols:out
void hotspot(int rows, int cols, const float *temp, const float *power, float *out) {
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++) {
            int at = r * cols + c;
            float here = temp[at];
            float north = r == 0 ? here : temp[at - cols], south = r == rows - 1 ? here : temp[at + cols];
            float west = c == 0 ? here : temp[at - 1], east = c == cols - 1 ? here : temp[at + 1];
            out[at] = here + 0.1f * (power[at] + (south + north - 2.0f * here) * 0.5f +
                                     (east + west - 2.0f * here) * 0.4f + (80.0f - here) * 0.01f);
        }
}
