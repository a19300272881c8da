// refork: rows=30 cols=30 image=rows*cols:inout:positive c=rows*cols:out q=:scalar:const:0.5
void diffusion(int rows, int cols, float *image, float *c, float q) {
    int i, j, k;
    for (i = 0; i < rows; i++)
        for (j = 0; j < cols; j++) {
            k = i * cols + j;
            float here = image[k];
            float n = image[(i > 0 ? i - 1 : 0) * cols + j] - here;
            float s = image[(i < rows - 1 ? i + 1 : rows - 1) * cols + j] - here;
            float w = image[i * cols + (j > 0 ? j - 1 : 0)] - here;
            float e = image[i * cols + (j < cols - 1 ? j + 1 : cols - 1)] - here;
            float g = (n * n + s * s + w * w + e * e) / (here * here);
            float l = (n + s + w + e) / here;
            float num = 0.5f * g - 0.0625f * l * l, den = 1 + 0.25f * l;
            float qs = num / (den * den);
            c[k] = 1.0f / (1.0f + (qs - q) * (qs - q));
        }
    for (i = 0; i < rows; i++)
        for (j = 0; j < cols; j++) image[i * cols + j] += 0.05f * c[i * cols + j];
}
