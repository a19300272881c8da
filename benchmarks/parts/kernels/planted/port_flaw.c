// Planted: 31 operations where one would do; the ports that multiply and add are busy in every cycle.
// refork: entry=weigh n=16384 x=n y=n:out flops=n bytes=8*n rtol=1e-3
void weigh(int n, const float *restrict x, float *restrict y)
{
    for (int i = 0; i < n; i++)
        y[i] = (((1 / 64.0f * x[i] + 2 / 64.0f * x[i]) + (3 / 64.0f * x[i] + 4 / 64.0f * x[i]))
                + ((5 / 64.0f * x[i] + 6 / 64.0f * x[i]) + (7 / 64.0f * x[i] + 8 / 64.0f * x[i])))
               + (((9 / 64.0f * x[i] + 10 / 64.0f * x[i]) + (11 / 64.0f * x[i] + 12 / 64.0f * x[i]))
                + ((13 / 64.0f * x[i] + 14 / 64.0f * x[i]) + (15 / 64.0f * x[i] + 16 / 64.0f * x[i])));
}
